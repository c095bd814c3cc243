"""`cospec datastore build`: texts to the datastore that the drafter `retrieval` looks in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cospec.cli.options import DraftOption, JsonOption, PairOption, RawOption, TargetOption, on_interrupt
from cospec.jsonl import dumps


def build(
    rows: Annotated[
        list[Path] | None,
        typer.Option("--rows", metavar="FILE.jsonl", help="Rows with text, output_ids or a prompt; repeatable."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="The datastore's directory, a new one.")
    ] = None,
    pair: PairOption = None,
    draft: DraftOption = None,
    target: TargetOption = None,
    raw: RawOption = False,
    json: JsonOption = False,
) -> None:
    """Build a datastore from files of texts, such as records of `cospec rollout`.

    Of a row it takes the prompt, if there is one, and behind it output_ids, else text. Only the pair's tokenizer is
    loaded; --target alone is enough. docs/drafters.md says what texts are worth it.
    """
    if not rows:
        raise ValueError("no texts given: use --rows FILE.jsonl")
    if out is None:
        raise ValueError("no place for the datastore given: use --out DIR")
    if out.exists():
        raise ValueError(f"--out {out} is there already: name another directory, or remove it")
    from cospec.cli.loading import read_pair_spec
    from cospec.datastore import PairTexts, build_datastore, require_pydivsufsort, texts_of_rows
    from cospec.pair import load_tokenizer

    require_pydivsufsort()
    spec = read_pair_spec(pair, draft, target, draft_use="optional")
    source = PairTexts(load_tokenizer(spec), spec)
    texts = (ids for file in rows for ids in texts_of_rows(file, source, raw=raw))
    with on_interrupt(lambda: "nothing, as the datastore was not whole"):
        info = build_datastore(texts, source.tokenizer, out)
    found = {"out": str(out), "num_texts": info.num_texts, "num_tokens": info.num_tokens - info.num_texts}
    typer.echo(dumps(found) if json else f"{out}: {found['num_tokens']} tokens of {info.num_texts} texts")


#: What `cospec datastore` can do, by name.
COMMANDS = {"build": build}
HELP = "Datastores of texts, in which the drafter `retrieval` looks for what to propose."

"""Builds the datastore of the drafter `retrieval`: rows of texts in, token ids and the order of their suffixes out."""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import PreTrainedTokenizerBase

from cospec.engine.drafters.datastore import CONFIG, SEPARATOR, SUFFIXES, TOKENS, DatastoreInfo, file_digest
from cospec.jsonl import read_numbered_jsonl, write_json_atomic
from cospec.pair import PairSpec, tokenizer_digest
from cospec.prompt_rows import parse_prompt_row
from cospec.prompts import Templated, row_prompt_ids

_PROMPTS = ("prompt", "messages", "prompt_ids")


@dataclass(frozen=True, slots=True)
class PairTexts:
    """The part of a pair that texts need, without its models."""

    tokenizer: PreTrainedTokenizerBase
    spec: PairSpec


def texts_of_rows(path: Path, source: Templated, *, raw: bool = False) -> Iterator[list[int]]:
    """The token ids of every row: its prompt's, if it has one, and behind them ``output_ids``, else those of ``text``.

    Records of `cospec rollout` and `cospec generate` are such rows. A text is encoded without special tokens.
    ValueError names file and line of a row without either, or with ids that are none of the tokenizer's.
    """
    num_ids = max(source.tokenizer.get_vocab().values()) + 1
    for number, row in read_numbered_jsonl(path):
        where = f"{path}:{number}"
        ids = _prompt_of(row, number, where, source, raw) + _answer_of(row, where, source)
        if not ids:
            raise ValueError(f"{where}: no text: a row needs text, output_ids, or a prompt")
        if not all(0 <= token_id < num_ids for token_id in ids):
            raise ValueError(f"{where}: an id outside the tokenizer's 0..{num_ids - 1}: was it made with another one?")
        yield ids


def _prompt_of(row: Mapping[str, Any], number: int, where: str, source: Templated, raw: bool) -> list[int]:
    if not any(row.get(name) is not None for name in _PROMPTS):
        return []
    return row_prompt_ids(source, parse_prompt_row(row, number, where, require_gold=False), raw=raw)


def _answer_of(row: Mapping[str, Any], where: str, source: Templated) -> list[int]:
    ids, text = row.get("output_ids"), row.get("text")
    if ids is not None:
        if not isinstance(ids, list) or not all(type(token_id) is int for token_id in ids):
            raise ValueError(f"{where}: output_ids is no list of whole numbers")
        return ids
    if text is not None and not isinstance(text, str):
        raise ValueError(f"{where}: text is a {type(text).__name__}: it must be a string")
    return list(source.tokenizer.encode(text, add_special_tokens=False)) if text else []


def build_datastore(
    texts: Iterable[Sequence[int]], tokenizer: PreTrainedTokenizerBase, directory: Path
) -> DatastoreInfo:
    """Write the datastore of these token ids; ``directory`` appears once it is whole.

    ValueError where there are no texts, or where the directory is there already.
    """
    require_pydivsufsort()
    if directory.exists():
        raise ValueError(f"{directory} is there already: name another directory, or remove it")
    tokens, num_texts = _joined(texts)
    directory.parent.mkdir(parents=True, exist_ok=True)
    part = Path(tempfile.mkdtemp(prefix=f".{directory.name}.", dir=directory.parent))
    try:
        tokens.tofile(part / TOKENS)
        suffixes = suffix_order(tokens)
        suffixes.tofile(part / SUFFIXES)
        info = DatastoreInfo(
            num_tokens=len(tokens),
            num_texts=num_texts,
            largest_id=int(tokens.max()),
            place_bytes=suffixes.itemsize,
            tokens_digest=file_digest(part / TOKENS),
            suffixes_digest=file_digest(part / SUFFIXES),
            tokenizer_digest=tokenizer_digest(tokenizer),
        )
        write_json_atomic(part / CONFIG, dataclasses.asdict(info))
        part.chmod(0o755)
        part.rename(directory)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return info


def _joined(texts: Iterable[Sequence[int]]) -> tuple[NDArray[np.int32], int]:
    pieces = [np.array([*ids, SEPARATOR], dtype="<i4") for ids in texts]
    if not pieces:
        raise ValueError("there are no texts: a datastore needs at least one")
    return np.concatenate(pieces), len(pieces)


def suffix_order(tokens: NDArray[np.int32]) -> NDArray[Any]:
    """Where the suffixes of ``tokens`` begin, in lexicographic order, as little-endian int32, or int64 beyond 2^31."""
    from pydivsufsort import divsufsort

    order = divsufsort(tokens)
    return order.astype("<i4" if len(tokens) <= np.iinfo(np.int32).max else "<i8", copy=False)


def require_pydivsufsort() -> None:
    """ValueError where the library that sorts suffixes is not installed."""
    try:
        import pydivsufsort  # noqa: F401
    except ImportError as error:
        raise ValueError("building a datastore needs pydivsufsort: pip install 'cospec[retrieval]'") from error

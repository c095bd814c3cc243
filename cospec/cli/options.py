"""Options that several verbs share, each spelt and explained once; use them as annotations of a verb's parameters."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Literal

import typer

# --- the pair and where it runs --------------------------------------------------------------------------------------

PairOption = Annotated[
    Path | None,
    typer.Option(
        "--pair", metavar="PAIR.yaml", help="File that describes draft and target, or `tiny`: the bundled pair."
    ),
]
DraftOption = Annotated[
    str | None, typer.Option("--draft", metavar="MODEL", help="Draft: directory or Hub id (with --target).")
]
TargetOption = Annotated[
    str | None,
    typer.Option(
        "--target",
        metavar="MODEL",
        help="Target: directory or Hub id (with --draft, or alone where no draft model runs).",
    ),
]
DeviceOption = Annotated[
    str | None,
    typer.Option(
        "--device", help="Such as cpu, cuda, cuda:1. Left out: the pair file's, else cuda where there is one."
    ),
]
DtypeOption = Annotated[
    Literal["auto", "float32", "bfloat16", "float16"] | None,
    typer.Option(
        "--dtype", help="Type of the weights; auto is the checkpoint's. Left out: the pair file's, else auto."
    ),
]
AttnOption = Annotated[
    Literal["sdpa", "eager"] | None,
    typer.Option("--attn", help="Attention implementation; the arbiter's mask needs one of these two."),
]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Seed of every random draw.")]

# --- output ----------------------------------------------------------------------------------------------------------

JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
OutOption = Annotated[Path | None, typer.Option("--out", metavar="PATH", help="Write the result here.")]

# --- decoding --------------------------------------------------------------------------------------------------------

PromptsOption = Annotated[
    Path | None,
    typer.Option(
        "--prompts", metavar="FILE.jsonl", help='Rows {"id", "prompt" | "messages" | "prompt_ids", "gold", "task"}.'
    ),
]
ScorerOption = Annotated[
    str | None,
    typer.Option("--scorer", help="A scorer's or task's name, or package.module:function. Left out: the rows' task."),
]
RuleOption = Annotated[
    str | None,
    typer.Option(
        "--rule", metavar="NAME[:PARAM=VALUE,...]", help="What decides which draft tokens stay: docs/rules.md."
    ),
]
ArbiterOption = Annotated[
    Path | None,
    typer.Option("--arbiter", metavar="DIR", help="Directory of a trained arbiter; implies --rule arbiter."),
]
ThresholdOption = Annotated[
    float, typer.Option("--threshold", min=0.0, max=1.0, help="The arbiter keeps the draft's token above this.")
]
BonusOption = Annotated[
    Literal["arbitrated", "target", "rule"] | None,
    typer.Option(
        "--bonus",
        help="The token after a fully accepted block: an arbitrated draft token, the target's own, or one of the "
        "rule's law. Left out: the rule's usual one.",
    ),
]
DrafterOption = Annotated[
    str | None,
    typer.Option(
        "--drafter",
        metavar="NAME[:PATH][:PARAM=VALUE,...]",
        help="What proposes tokens: the draft model, or another one of docs/drafters.md.",
    ),
]
NumDraftTokensOption = Annotated[
    int, typer.Option("--num-draft-tokens", help="Draft tokens a round, K in the method; at least 1.")
]


def _cost_ratio(text: str) -> float:
    if text == "auto":
        raise typer.BadParameter("`cospec generate --cost-ratio auto` measures it and prints the number to give here")
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no number: give a draft step's share of a target pass's time") from None


CostRatioOption = Annotated[
    float | None,
    typer.Option(
        "--cost-ratio",
        metavar="RATIO",
        parser=_cost_ratio,
        help="Blocks as long as pays for each row, one token at least, a draft step taking this share of a target "
        "pass's time.",
    ),
]
CompileOption = Annotated[
    Literal["inductor", "graphs"] | None,
    typer.Option(
        "--compile",
        help="Compile the passes over the texts: inductor, or CUDA graphs. Pays for itself in long runs only.",
    ),
]
PackedOption = Annotated[
    bool,
    typer.Option(
        "--packed",
        help="On a CPU: lay out the weights for its matrix kernels once, in a second copy. Pays with billions of them.",
    ),
]
MaxNewTokensOption = Annotated[int, typer.Option("--max-new-tokens", help="Most tokens to write for a prompt.")]


def one_of_several(text: str) -> int:
    """One value of a repeatable option that takes whole numbers."""
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is no whole number: give one, and the option again for each other"
        ) from None


EosOption = Annotated[
    list[int] | None,
    typer.Option(
        "--eos-token-id",
        metavar="ID",
        parser=one_of_several,
        help="Ending token id; repeatable; replaces the model's own.",
    ),
]
StopOption = Annotated[
    list[str] | None,
    typer.Option("--stop", metavar="STRING", help="A text ends before the first of these to be complete; repeatable."),
]
BatchSizeOption = Annotated[int, typer.Option("--batch-size", min=1, help="Prompts decoded together.")]
TemperatureOption = Annotated[float, typer.Option("--temperature", help="0 is greedy.")]
TopKOption = Annotated[int, typer.Option("--top-k", help="Sample from the k likeliest tokens only; 0: from all.")]
TopPOption = Annotated[float, typer.Option("--top-p", help="Sample from the likeliest tokens of this mass; 1: all.")]
MinPOption = Annotated[
    float, typer.Option("--min-p", help="Drop tokens below this share of the likeliest one's probability; 0: none.")
]
PenaltyOption = Annotated[
    float,
    typer.Option("--repetition-penalty", help="Above 1: tokens of prompt and text become less likely; 1: off."),
]
RawOption = Annotated[bool, typer.Option("--raw", help="Take prompts as plain text: no chat template.")]


def named_directory(text: str) -> tuple[str | None, Path]:
    """Name and directory of an --arbiter option, `DIR` or `NAME=DIR`; None where no name is given."""
    name, equals, directory = text.partition("=")
    if equals and not Path(text).exists():
        if not name or not directory:
            raise ValueError(f"--arbiter {text!r}: write DIR or NAME=DIR")
        return name, Path(directory)
    return None, Path(text)


def written(context: typer.Context) -> frozenset[str]:
    """The names of the parameters that the user wrote on the command line, whatever their values."""
    sources = {name: context.get_parameter_source(name) for name in context.params}
    return frozenset(name for name, source in sources.items() if source and source.name == "COMMANDLINE")


#: Whether the draft model is needed, left to the user, or would be loaded for nothing.
DraftUse = Literal["needed", "optional", "none"]


def require_pair_choice(
    pair: Path | None, draft: str | None, target: str | None, draft_use: DraftUse = "needed"
) -> None:
    """ValueError unless the pair is given in exactly one way: --pair, or --draft and --target together.

    --target alone will do where the draft is not ``needed``; with ``none``, --draft is refused.
    """
    if pair is not None and (draft is not None or target is not None):
        raise ValueError("--pair and --draft/--target both name models: keep one of the two ways")
    if pair is None and draft is None and target is None:
        raise ValueError("no models given: use --pair PAIR.yaml, or --draft MODEL and --target MODEL")
    if draft is not None and draft_use == "none":
        raise ValueError("--draft names a model, and nothing here drafts with one: drop --draft")
    if draft_use != "needed" and target is not None:
        return
    if pair is None and (draft is None or target is None):
        given, missing = ("--draft", "--target") if target is None else ("--target", "--draft")
        alone = "; --target alone will do where no draft model runs: the target as only method, or --drafter ngram"
        raise ValueError(f"{given} is given without {missing}: a pair needs both{alone if draft is None else ''}")


@contextmanager
def on_interrupt(describe_kept: Callable[[], str]) -> Iterator[None]:
    """Around long work: after an interrupt, or on a full disk, the last line says what ``describe_kept`` does."""
    try:
        yield
    except (KeyboardInterrupt, OSError) as stop:
        stop.add_note(describe_kept())
        raise

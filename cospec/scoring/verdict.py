"""A verdict: what a scorer says about one text."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

VerdictKind = Literal["right", "wrong", "no_answer", "timeout", "error"]
KINDS: tuple[VerdictKind, ...] = ("right", "wrong", "no_answer", "timeout", "error")

# What a user may write: (text, row) -> Verdict, bool, 0 or 1, or None for a failure. The row has at least "id",
# "prompt" and "gold", and the prompt row's extra fields.
UserScorer = Callable[[str, Mapping[str, Any]], object]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Right, wrong, without an answer (counts as wrong), or a failure of the scorer itself.

    ``extracted`` is the answer found in the text; ``reason`` says in words why the verdict is not "right".
    """

    kind: VerdictKind
    extracted: str | None = None
    reason: str = ""

    @property
    def is_right(self) -> bool:
        return self.kind == "right"

    @property
    def is_failure(self) -> bool:
        """The scorer, not the text, went wrong: such a rollout is masked and counted, never given a zero."""
        return self.kind in ("timeout", "error")

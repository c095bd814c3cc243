"""What the open question-answering tasks share: how they ask, and examples written for them."""

from __future__ import annotations

from collections.abc import Iterable

from cospec.tasks.base import Problem, UnusableRow

ASK = "{question}\n\nReply on one line with nothing but the answer itself, in as few words as possible."

_EXAMPLES = (
    ("ocean", "Which ocean lies between Africa and Australia?", "Indian Ocean"),
    ("frankenstein", "Who wrote the novel Frankenstein?", "Mary Shelley"),
    ("tungsten", "Which chemical element has the symbol W?", "Tungsten"),
    ("hubble", "In which year was the Hubble Space Telescope launched?", "1990"),
    ("fado", "Which country does the music called fado come from?", "Portugal"),
    ("heart", "How many chambers does a frog's heart have?", "Three"),
)
EXAMPLES = tuple(
    Problem(f"example/{name}", question, answer, answer, {"golds": [answer]}) for name, question, answer in _EXAMPLES
)
"""Questions of our own."""


def usable_golds(answers: Iterable[object]) -> list[str]:
    """The aliases that are texts, each once and in order; UnusableRow where none is left."""
    golds = list(dict.fromkeys(text.strip() for text in answers if isinstance(text, str) and text.strip()))
    if not golds:
        raise UnusableRow("no gold answer")
    return golds

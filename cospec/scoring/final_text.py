"""Which part of a text is its final statement, for the scorers of short answers."""

from __future__ import annotations

import re
from collections.abc import Callable

from cospec.scoring.final_answer import joined, without_end_tokens

# A base model that goes on with the next question of a few-shot prompt.
_NEXT_QUESTION = re.compile(r"\n[ \t]*(?:Question|Q|Problem)[ \t]*:")
_MAX_QUESTIONS = 5
_BOXED = re.compile(r"\\boxed\s*\{")
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")


def final_text(text: str, answers: Callable[[str], bool] = lambda part: bool(part.strip())) -> str:
    """The text without what is thought aloud before it, what runs on behind it, and end-of-turn tokens.

    What precedes the last </think> goes; of a text that is still thinking when it ends nothing is left. So does what
    follows a line that begins with "Question:", "Q:" or "Problem:" after a part that ``answers``.
    """
    text = without_end_tokens(text)
    _, closed, after = text.rpartition("</think>")
    if closed:
        text = after
    elif text.lstrip().startswith("<think>"):
        return ""
    starts = [match.start() for match in _NEXT_QUESTION.finditer(text)][:_MAX_QUESTIONS]
    following = next((start for start in starts if answers(text[:start])), None)
    return (text if following is None else text[:following]).strip()


def boxed(text: str) -> list[str]:
    r"""The contents of the last \boxed{...} whose braces close, in order, without \text and the like around them."""
    return [content for _, _, content in _boxes(text)]


def last_boxes(text: str) -> list[str]:
    """The different contents of the last box and of those that are joined to it: ``\\boxed{A} or \\boxed{B}``."""
    found = _boxes(text)
    first = len(found) - 1
    while first > 0 and joined(text[found[first - 1][1] : found[first][0]]):
        first -= 1
    return list(dict.fromkeys(content for _, _, content in found[max(first, 0) :]))


def without_text_commands(text: str) -> str:
    r"""``text`` with what \text{...}, \textbf{...} and the like hold in place of the commands."""
    return _TEXT_COMMAND.sub(r"\1", text)


def _boxes(text: str) -> list[tuple[int, int, str]]:
    found: list[tuple[int, int, str]] = []
    # The last ones count; and neither many boxes nor unclosed ones may make this slow.
    for match in list(_BOXED.finditer(text))[-20:]:
        depth, start = 1, match.end()
        for index in range(start, min(len(text), start + 400)):
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            if depth == 0:
                found.append((match.start(), index + 1, without_text_commands(text[start:index]).strip()))
                break
    return found


def lines_of(text: str) -> list[str]:
    """Lines that hold more than blanks, stripped."""
    return [line.strip() for line in text.split("\n") if line.strip()]

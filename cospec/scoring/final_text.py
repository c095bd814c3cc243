"""Which part of a text is its final statement, for the scorers of short answers."""

from __future__ import annotations

import re
from collections.abc import Callable

from cospec.scoring.final_answer import contents, neighbours, own_part, without_end_tokens
from cospec.scoring.spans import Span

# A base model that goes on with the next question of a few-shot prompt.
_NEXT_QUESTION = re.compile(r"\n[ \t]*(?:Question|Q|Problem)[ \t]*:")
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
    return own_part(text, answers, _NEXT_QUESTION).strip()


def last_boxes(text: str) -> list[str]:
    """The different contents of the last box and of those that are joined to it: ``\\boxed{A} or \\boxed{B}``."""
    found = closed_boxes(text)
    return list(contents(neighbours(text, found, len(found) - 1))) if found else []


def without_text_commands(text: str) -> str:
    r"""``text`` with what \text{...}, \textbf{...} and the like hold in place of the commands."""
    return _TEXT_COMMAND.sub(r"\1", text)


def closed_boxes(text: str) -> list[Span]:
    r"""The last \boxed{...} whose braces close, in order, their contents without \text and the like around them."""
    found: list[Span] = []
    # The last ones count; and neither many boxes nor unclosed ones may make this slow.
    for match in list(_BOXED.finditer(text))[-20:]:
        depth, start = 1, match.end()
        for index in range(start, min(len(text), start + 400)):
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            if depth == 0:
                found.append(Span(match.start(), index + 1, without_text_commands(text[start:index]).strip()))
                break
    return found


def lines_of(text: str) -> list[str]:
    """Lines that hold more than blanks, stripped."""
    return [line.strip() for line in text.split("\n") if line.strip()]

"""Which part of a text is its final statement, for the scorers of short answers."""

from __future__ import annotations

import re

# A base model that goes on with the next question of a few-shot prompt.
_NEXT_QUESTION = re.compile(r"\n[ \t]*(?:Question|Q|Problem)[ \t]*:")
_BOXED = re.compile(r"\\boxed\s*\{")
_TEXT_COMMAND = re.compile(r"\\(?:text|textbf|mathrm|mathbf|textit)\s*\{([^{}]*)\}")


def final_text(text: str) -> str:
    """The text without what is thought aloud before it and what runs on behind it.

    What precedes the last </think> goes; of a text that is still thinking when it ends nothing is left. So does what
    follows a line that begins with "Question:", "Q:" or "Problem:" after some text of its own.
    """
    _, closed, after = text.rpartition("</think>")
    if closed:
        text = after
    elif text.lstrip().startswith("<think>"):
        return ""
    following = next((match.start() for match in _NEXT_QUESTION.finditer(text) if text[: match.start()].strip()), None)
    return (text if following is None else text[:following]).strip()


def boxed(text: str) -> list[str]:
    r"""The contents of the last \boxed{...} whose braces close, in order, without \text and the like around them."""
    found: list[str] = []
    # The last ones count; and neither many boxes nor unclosed ones may make this slow.
    for match in list(_BOXED.finditer(text))[-20:]:
        depth, start = 1, match.end()
        for index in range(start, min(len(text), start + 400)):
            depth += {"{": 1, "}": -1}.get(text[index], 0)
            if depth == 0:
                found.append(_TEXT_COMMAND.sub(r"\1", text[start:index]).strip())
                break
    return found


def lines_of(text: str) -> list[str]:
    """Lines that hold more than blanks, stripped."""
    return [line.strip() for line in text.split("\n") if line.strip()]

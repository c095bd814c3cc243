"""One spelling for the many ways to typeset the same mathematics; nothing here changes what an expression means."""

import re
import unicodedata

from cospec.scoring.latex.arguments import brace_arguments, group_end
from cospec.scoring.latex.spelling import CHARACTERS, SAME

#: The sign, unlike the command, takes a whole number.
_ROOT = re.compile(r"√\s*(?:(\d+(?:\.\d+)?)|\(([^()]*)\))")
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\\[,;: ]|~|\{,\}|,\\!\s*)\d{3})+(?!\d)")
_TEXTS = "text|textbf|textit|textrm|textsf|textnormal|texttt|mbox|hbox|mathtext"
_STYLES = "mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mathnormal|operatorname\\*?|ensuremath|boxed|fbox|underline|emph"
_WRAPPER = re.compile(rf"\\(?:(?P<text>{_TEXTS})|(?P<style>{_STYLES}))\s*(?=\{{)")
_WORD = re.compile(r"\s*[A-Za-z][A-Za-z .,'-]+")
_LONE_GROUP = re.compile(r"(?<![\w}\]^_\\])\{([\w.]+)\}|(?<=\d)\{([a-zA-Z])\}")
_NEGATIVE_POWER = re.compile(r"\^\s*(-\s*(?:\d+|[a-zA-Z]))")
_FUNCTIONS = frozenset(
    f"{prefix}{name}{suffix}"
    for prefix in ("", "arc")
    for name in ("sin", "cos", "tan", "cot", "sec", "csc", "log", "ln", "exp", "min", "max", "gcd", "det")
    for suffix in ("", "h")
)


def clean(latex: str) -> str:
    r"""``latex`` in one spelling: commands for characters, braces around arguments, no typographic space or size.

    Text keeps its ``\text{...}``; the degree sign, per cent sign and thousands commas stay for those who read on.
    """
    text = "".join(map(_character, _ROOT.sub(_root, latex)))
    text = _GROUPED.sub(lambda found: re.sub(r"\D", "", found[0]), text)
    for pattern, replacement in SAME:
        text = pattern.sub(replacement, text)
    if r"\begin" not in text:
        # Doubled by a careless escape; in a matrix it may end a row.
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
    text = _unwrap(text)
    text = _NEGATIVE_POWER.sub(r"^{\1}", text)
    text = brace_arguments(text)
    text = _LONE_GROUP.sub(r"\1\2", text)
    return strip_marks(text)


def _root(found: re.Match[str]) -> str:
    return rf"\sqrt{{{found[1] or found[2]}}}"


def _character(character: str) -> str:
    if character < "\x7f":
        return character
    if character in CHARACTERS:
        return CHARACTERS[character]
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    return " " if character.isspace() else character


def strip_marks(text: str) -> str:
    """``text`` without the dollars, bold marks, quotes and closing points around or in it, blanks collapsed."""
    text = re.sub(r"(?<!\\)\\[()\[\]]|\$", " ", text)
    return " ".join(text.split()).strip(' *_`"').rstrip('.,;: *_`"').strip()


def _unwrap(text: str) -> str:
    """Drop style commands, and give all text commands one name; a word set in roman is text."""
    out, position = [], 0
    while found := _WRAPPER.search(text, position):
        end = group_end(text, found.end())
        out.append(text[position : found.start()])
        if end < 0:
            position = found.end()
            continue
        content = text[found.end() + 1 : end - 1]
        is_text = found["text"] or (found["style"] not in ("boxed", "fbox") and _WORD.fullmatch(content))
        out.append(_text(content) if is_text else "{" + _unwrap(content) + "}")
        position = end
    return "".join(out) + text[position:]


def _text(content: str) -> str:
    bare = content.strip()
    if not re.search(r"\w", bare):
        return bare or " "
    return rf"\{bare} " if bare in _FUNCTIONS else rf"\text{{{content}}}"

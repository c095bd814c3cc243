"""Text of a model as inert HTML: nothing in it is markup, and nothing in it is invisible."""

from __future__ import annotations

import re
import unicodedata

from markupsafe import Markup, escape

#: What a browser would drop, normalise or obey: controls but newline, format characters (among them those that turn
#: the direction of the text around them), line and paragraph separators, lone surrogates, noncharacters.
_HIDDEN_CATEGORIES = ("Cc", "Cf", "Cs", "Zl", "Zp")
#: Joiners and variation selectors build one emoji or one letter out of several characters.
_JOINERS = "\u200c\u200d"
_RUNS = re.compile(r"[^\n]+|\n")


def shown(text: str, *, line_breaks: bool = True) -> Markup:
    """``text`` as HTML for an element with ``white-space: pre-wrap``.

    Hidden characters become a marked picture (U+2400 and following) or code point; a newline is marked, and also breaks
    the line unless ``line_breaks`` is False. Everything else is itself, escaped.
    """
    parts: list[Markup] = []
    for run in _RUNS.findall(text):
        if run == "\n":
            parts.append(Markup('<i class="ctl">↵</i>{}').format("\n" if line_breaks else ""))
        else:
            parts.extend(_pieces(run))
    return Markup("").join(parts)


def plain(text: str) -> str:
    """The same for places that take no markup: attributes, titles, chart labels. One line."""
    return "".join(_picture(char) if char == "\n" or _is_hidden(char) else char for char in text)


def shortened(text: str, length: int, *, keep_end: bool = False) -> str:
    """At most ``length`` characters, the rest replaced by an ellipsis at the front (``keep_end``) or the back."""
    if len(text) <= length:
        return text
    return "…" + text[len(text) - length + 1 :] if keep_end else text[: length - 1] + "…"


def _pieces(run: str) -> list[Markup]:
    parts, start = [], 0
    for index, char in enumerate(run):
        if _is_hidden(char):
            name = f"U+{ord(char):04X}"
            mark = Markup('<i class="ctl" title="{}">{}</i>').format(name, _picture(char))
            parts += [escape(run[start:index]), mark, Markup("\t" if char == "\t" else "")]
            start = index + 1
    return [*parts, escape(run[start:])]


def _is_hidden(char: str) -> bool:
    if char in _JOINERS:
        return False
    is_no_character = ord(char) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(char) <= 0xFDEF
    return is_no_character or unicodedata.category(char) in _HIDDEN_CATEGORIES


def _picture(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return "↵" if char == "\n" else chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"[U+{code:04X}]"

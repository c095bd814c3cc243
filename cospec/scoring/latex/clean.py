"""One spelling for the many ways to typeset the same mathematics; nothing here changes what an expression means."""

import re
import unicodedata
from collections.abc import Mapping
from types import MappingProxyType

_CHARACTERS: Mapping[str, str] = MappingProxyType(
    {
        "−": "-",
        "–": "-",
        "﹣": "-",
        "－": "-",
        "‐": "-",
        "‑": "-",
        "×": r"\times ",
        "·": r"\cdot ",
        "⋅": r"\cdot ",
        "∗": "*",
        "÷": r"\div ",
        "∕": "/",
        "⁄": "/",
        "±": r"\pm ",
        "∓": r"\mp ",
        "√": r"\sqrt ",
        "∞": r"\infty ",
        "°": r"^\circ ",
        "º": r"^\circ ",
        "≤": r"\le ",
        "≥": r"\ge ",
        "≠": r"\ne ",
        "≈": r"\approx ",
        "∈": r"\in ",
        "∪": r"\cup ",
        "∩": r"\cap ",
        "∅": r"\emptyset ",
        "π": r"\pi ",
        "θ": r"\theta ",
        "α": r"\alpha ",
        "β": r"\beta ",
        "λ": r"\lambda ",
        "φ": r"\phi ",
        "ω": r"\omega ",
        "½": r"\frac{1}{2}",
        "⅓": r"\frac{1}{3}",
        "⅔": r"\frac{2}{3}",
        "¼": r"\frac{1}{4}",
        "¾": r"\frac{3}{4}",
        "²": "^{2}",
        "³": "^{3}",
        "％": "%",
        "（": "(",
        "）": ")",
        "，": ",",
        "＝": "=",
        "＋": "+",
        "．": ".",
        "。": ".",
        "＄": "$",
        "‘": "'",
        "’": "'",
        "“": '"',
        "”": '"',
    }
)

_ALIGNED = r"(?:align|aligned|gather|gathered|equation|split|eqnarray|multline)\*?"
#: What TeX typesets the same, or as space; longer names first where one begins another.
_SAME: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"\\(?:color|phantom|hphantom|vphantom|tag|label)\*?\s*\{[^{}]*\}|\\(?:checkmark|square|blacksquare)(?![a-zA-Z])", " "),
        (r"\\textcolor\s*\{[^{}]*\}\s*(?=\{)", ""),
        (rf"\\begin\{{{_ALIGNED}\}}|\\\\\s*(?=\\end\{{{_ALIGNED}\}})|\\end\{{{_ALIGNED}\}}", " "),
        (r"(?:\\\\)?\s*&\s*(?==)", " "),
        (r"(?<!\\)\\(?:!|negthinspace(?![a-zA-Z]))\s*", ""),
        (r"\\\\\[-?[\d.]+\s*(?:pt|mm|cm|em|ex)\]", r"\\\\"),
        (r"(?<!\\)\\(?:[,:; >]|(?:quad|qquad|enspace|thinspace|space|hfill|par)(?![a-zA-Z]))|~", " "),
        (r"\\(?:left|right|mleft|mright|[bB]igg?[lrm]?)(?![a-zA-Z])\s*\.?(?=\s*[\\()\[\]|./<>{}])", ""),
        (r"\\(?:displaystyle|textstyle|scriptstyle|limits|nolimits|boldmath|rm|bf|it)(?![a-zA-Z])", " "),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\\[dt]binom(?![a-zA-Z])|\\choose(?![a-zA-Z])(?=\{)", r"\\binom"),
        (r"\\leq(?:slant)?(?![a-zA-Z])", r"\\le "),
        (r"\\geq(?:slant)?(?![a-zA-Z])", r"\\ge "),
        (r"\\lt(?![a-zA-Z])", "<"),
        (r"\\gt(?![a-zA-Z])", ">"),
        (r"\\neq(?![a-zA-Z])", r"\\ne "),
        (r"\\varnothing(?![a-zA-Z])", r"\\emptyset "),
        (r"\\lbrace(?![a-zA-Z])", r"\\{"),
        (r"\\rbrace(?![a-zA-Z])", r"\\}"),
        (r"\\lbrack(?![a-zA-Z])", "["),
        (r"\\rbrack(?![a-zA-Z])", "]"),
        (r"\\(?:[lr]vert|vert)(?![a-zA-Z])", "|"),
        (r"\\mid(?![a-zA-Z])", "|"),
        (r"\\(?:ast|star)(?![a-zA-Z])", "*"),
        (r"\\colon(?![a-zA-Z])", ":"),
        (r"\\(?:simeq|sim)(?![a-zA-Z])", r"\\approx "),
        (r"\\(?:degrees?|textdegree)(?![a-zA-Z])", r"^\\circ "),
        (r"(?:\{\s*\})?\s*\^\s*(?:\{\s*\\circ\s*\}|\\circ(?![a-zA-Z]))", "°"),
        (r"\\(?:pounds|euro|texteuro|textdollar|dollar)(?![a-zA-Z])", "$"),
        (r"\\\$", "$"),
        (r"\\%", "%"),
        (r"\\#", "#"),
        # What a residue is taken by is part of the question.
        (r"\(?\s*\\pmod\s*(?:\{[^{}]*\}|\d+|[a-zA-Z])\s*\)?|\(\s*\\(?:text|mathrm)\{\s*mod\s*\}\s*\w+\s*\)", ""),
        (r"\(\s*\\text\{\s*mod\s*[\w\s]+\}\s*\)|\(\s*\\bmod\s*\w+\s*\)", ""),
        (r"\\&", "&"),
        (r"\\_", "_"),
        (r"(?<![a-zA-Z])\{\s*([,:%$])\s*\}", r"\1"),
        (r"(\\[a-zA-Z]+|[\^_}\]])\s+(?=\{)", r"\1"),
        (r"\^\s*\{?\s*\\(?:text|mathrm|textrm|mbox)\s*\{\s*(?:st|nd|rd|th)\s*\}\s*\}?", ""),
        (r"(?<![a-zA-Z\\])(?:infinity|oo)(?![a-zA-Z])", r"\\infty "),
        (r"(?<![a-zA-Z\\])pi(?![a-zA-Z])", r"\\pi "),
        (r"(?<![a-zA-Z\\])sqrt(?=\s*[({])", r"\\sqrt"),
        (r"(?<=[\w)}])\*\*(?=[\w({\-])", "^"),
    )
)
_GROUPED = re.compile(r"(?<![\d.,])\d{1,3}(?:(?:\\[,;: ]|~|\{,\}|,\\!\s*)\d{3})+(?!\d)")
_TEXTS = "text|textbf|textit|textrm|textsf|textnormal|texttt|mbox|hbox|mathtext"
_STYLES = "mathrm|mathbf|mathit|mathsf|boldsymbol|bm|mathnormal|operatorname\\*?|ensuremath|boxed|fbox|underline|emph"
_WRAPPER = re.compile(rf"\\(?:(?P<text>{_TEXTS})|(?P<style>{_STYLES}))\s*(?=\{{)")
_WORD = re.compile(r"\s*[A-Za-z][A-Za-z .,'-]+")
_LONE_GROUP = re.compile(r"(?<![\w}\]^_\\])\{([\w.]+)\}|(?<=\d)\{([a-zA-Z])\}")
_NEGATIVE_POWER = re.compile(r"\^\s*(-\s*(?:\d+|[a-zA-Z]))")
_ARGUMENTS: Mapping[str, int] = MappingProxyType({r"\frac": 2, r"\binom": 2, r"\sqrt": 1})
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_FUNCTIONS = frozenset("sin cos tan cot sec csc arcsin arccos arctan log ln exp min max gcd det sinh cosh tanh".split())


def clean(latex: str) -> str:
    """``latex`` in one spelling: commands for characters, braces around arguments, no typographic space or size.

    Text keeps its ``\text{...}``; the degree sign, per cent sign and thousands commas stay for those who read on.
    """
    text = "".join(map(_character, latex))
    text = _GROUPED.sub(lambda found: re.sub(r"\D", "", found[0]), text)
    for pattern, replacement in _SAME:
        text = pattern.sub(replacement, text)
    if r"\begin" not in text:
        # Doubled by a careless escape; in a matrix it may end a row.
        text = re.sub(r"\\\\(?=[a-zA-Z])", r"\\", text)
    text = _unwrap(text)
    text = _NEGATIVE_POWER.sub(r"^{\1}", text)
    text = _brace_arguments(text)
    text = _LONE_GROUP.sub(r"\1\2", text)
    return strip_marks(text)


def _character(character: str) -> str:
    if character < "\x7f":
        return character
    if character in _CHARACTERS:
        return _CHARACTERS[character]
    digit = unicodedata.decimal(character, None)
    if digit is not None:
        return str(digit)
    return " " if character.isspace() else character


def strip_marks(text: str) -> str:
    """``text`` without the dollars, bold marks, quotes and closing points around or in it, blanks collapsed."""
    text = re.sub(r"(?<!\\)\\[()\[\]]|\$", " ", text)
    return " ".join(text.split()).strip(" *_`\"").rstrip(".,;: *_`\"").strip()


def group_end(text: str, start: int) -> int:
    """The index behind the brace group that opens at ``start``, or -1 if it never closes."""
    depth, index = 0, start
    while index < len(text):
        character = text[index]
        if character == "\\":
            index += 1
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if not depth:
                return index + 1
        index += 1
    return -1


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
        if found["text"] or (found["style"] not in ("boxed", "fbox") and _WORD.fullmatch(content)):
            bare = content.strip()
            if not re.search(r"\w", bare):
                out.append(bare or " ")
                position = end
                continue
            out.append(rf"\{bare} " if bare in _FUNCTIONS else rf"\text{{{content}}}")
        else:
            out.append("{" + _unwrap(content) + "}")
        position = end
    return "".join(out) + text[position:]


def _brace_arguments(text: str) -> str:
    r"""Braces around single-token arguments: ``\frac12``, ``\frac{1}2``, ``\sqrt2``, ``\sqrt(2)``, ``x^(n+1)``."""
    out, position = [], 0
    pattern = re.compile(r"\\(?:frac|binom|sqrt)(?![a-zA-Z])|\^(?=\s*\()")
    while found := pattern.search(text, position):
        out.append(text[position : found.start()])
        name, position = found[0], found.end()
        out.append(name)
        if name == r"\sqrt" and (root := re.compile(r"\s*\[[^\[\]]*\]").match(text, position)):
            out.append(root[0].strip())
            position = root.end()
        for _ in range(_ARGUMENTS.get(name, 1)):
            argument, position = _argument(text, position, parentheses=name in (r"\sqrt", "^"))
            out.append(argument)
    return "".join(out) + text[position:]


def _argument(text: str, start: int, *, parentheses: bool) -> tuple[str, int]:
    while start < len(text) and text[start] == " ":
        start += 1
    if start == len(text):
        return "", start
    if text[start] == "{":
        end = group_end(text, start)
        return (text[start:], len(text)) if end < 0 else ("{" + _brace_arguments(text[start + 1 : end - 1]) + "}", end)
    if text[start] == "(" and parentheses:
        end = _parenthesis_end(text, start)
        if end > 0:
            return "{" + _brace_arguments(text[start + 1 : end - 1]) + "}", end
    command = _COMMAND.match(text, start)
    end = command.end() if command else start + 1
    return "{" + text[start:end] + "}", end


def _parenthesis_end(text: str, start: int) -> int:
    depth = 0
    for index in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if not depth:
            return index + 1
    return -1

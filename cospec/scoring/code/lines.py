"""Which lines of a text look like Python, told by its lines alone: nothing a model wrote is parsed in this process.

A parser can be made slow, or made to overflow the stack, by what it parses; this takes one pass.
"""

import keyword
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_KEYWORD_LINE = re.compile(
    r"(?:async\s+)?(?:def|class)\s+\w+\s*[(:\[]"
    r"|(?:import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*|from\s+[\w.]+\s+import\s+[\w*(].*)\s*(?:;.*)?$"
    r"|(?:if|elif|for|while|with|match|case|except)\b.*:"
    r"|(?:else|try|finally|except)\s*:"
    r"|(?:return|raise|assert|yield|del|global|nonlocal|await)\b"
    r"|(?:pass|break|continue)\s*(?:;.*)?$"
)
# An assignment, a call, a decorator, a literal, the end of something opened before.
_OTHER_LINE = re.compile(
    r"@\w|[)\]}]|\"\"|\(|\[|\{"
    r"|[A-Za-z_][\w.]*(?:\[[^\]]*\])*(?:\s*,\s*\*?[A-Za-z_][\w.]*(?:\[[^\]]*\])*)*\s*(?::[^=]*)?(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)"
    r"|[A-Za-z_][\w.]*\("
)
_PROGRAM_LINE = re.compile(r"@\w|(?:async\s+)?(?:def|class)\s+\w|import\s|from\s+[\w.]+\s+import\s")
_MAX_LOOKED_AT = 500

# A string that ends in its line or not, a comment, a backslash at the end.
_PIECE = re.compile(
    r"(?P<prefix>\b[rRbBuUfF]{1,2})?"
    r"(?P<whole>\"{3}(?:\\.|[^\\])*?\"{3}|'{3}(?:\\.|[^\\])*?'{3}"
    r"|\"(?!\"\")(?:\\.|[^\"\\])*\"|'(?!'')(?:\\.|[^'\\])*')"
    r"|(?P<open>\"{3}|'{3}|[\"']).*$|#.*$|\\$"
)
_HAS_PIECE = re.compile(r"[\"'#\\]")
_IN_BRACES = re.compile(r"\{([^{}]*)")
_STRING_END = {
    "'": re.compile(r"(?:\\.|[^'\\])*'"),
    '"': re.compile(r'(?:\\.|[^"\\])*"'),
    "'''": re.compile(r"(?:\\.|[^\\])*?'''"),
    '"""': re.compile(r'(?:\\.|[^\\])*?"""'),
}
# Keywords, and words that are keywords at the beginning; behind them, an operand may follow another.
_KEYWORD = re.compile(rf"\b(?:{'|'.join(keyword.kwlist)})\b|^(?:match|case|type)\b(?=\s)")
_ELLIPSIS = re.compile(r"\.{3}|(?<=^from)\s+\.+")
# What sentences have and code has not: operands side by side, a dot at an end, other signs, a value for a call.
_NOT_PYTHON = re.compile(
    r"[\w)\]}]\s+[\w\"]|[)\]}]\w|\"\s*\w"
    r"|(?<!\d)\.(?!\w)|[^\w\s\"()\[\]{}+\-*/%@&|^~<>=.,:;!]|!(?!=)|=>"
    r"|^[\w.]+\([^()]*\)\s*(?:=(?!=)|:|->)"
)


@dataclass(frozen=True, slots=True)
class Statement:
    """A logical line: the lines from ``start`` up to ``stop``, joined where a bracket, string or backslash joins them.

    In ``text`` each string is `""` and comments are left out; ``formatted`` is what f-strings have in braces.
    """

    start: int
    stop: int
    indent: int
    text: str
    formatted: str

    @property
    def is_code(self) -> bool:
        """It can be a Python statement; prose seldom can."""
        text = self.text[:_MAX_LOOKED_AT]
        return bool(_KEYWORD_LINE.match(text) or _OTHER_LINE.match(text)) and _reads_as_python(text)

    @property
    def starts_program(self) -> bool:
        """It begins a definition, an import or a decorator: hardly ever prose."""
        return bool(_PROGRAM_LINE.match(self.text)) and self.is_code

    @property
    def opens_block(self) -> bool:
        """Its block stands in the lines below."""
        return self.text.endswith(":")


@dataclass(frozen=True, slots=True)
class State:
    """What is open behind a line: a string (its quotes), a number of brackets, a line that a backslash continues."""

    quote: str = ""
    depth: int = 0
    is_continued: bool = False

    @property
    def is_open(self) -> bool:
        """The statement goes on in the next line."""
        return bool(self.quote or self.depth or self.is_continued)


_CLOSED = State()


def is_code(line: str) -> bool:
    """The line, its indentation aside, can begin a Python statement or is a comment; prose seldom can."""
    statement = next(statements([line]), None)
    return line.lstrip().startswith("#") if statement is None else statement.is_code


def indent_of(line: str) -> int:
    """Width of the line's indentation."""
    width = len(line) - len(line.lstrip(" \t"))
    return len(line[:width].expandtabs(4)) if "\t" in line[:width] else width


def statements(lines: Sequence[str], start: int = 0) -> Iterator[Statement]:
    """The statements from the line ``start`` on, at any indentation, without those that are only a comment."""
    index = start
    while index < len(lines):
        first, line = index, lines[index]
        index += 1
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        text: list[str] = []
        formatted: list[str] = []
        state = after_line(line, _CLOSED, text, formatted)
        while state.is_open and index < len(lines) and not _is_broken_off(state, lines[index]):
            text.append(" ")
            state = after_line(lines[index], state, text, formatted)
            index += 1
        yield Statement(first, index, indent_of(line), "".join(text).strip(), " ".join(formatted))


def margin_statements(lines: Sequence[str], start: int = 0) -> Iterator[Statement]:
    """Those of the statements that stand at the left margin."""
    return (statement for statement in statements(lines, start) if statement.indent == 0)


def _is_broken_off(state: State, line: str) -> bool:
    """A bracket was never closed: no expression goes on with a definition at the left margin."""
    return not state.quote and bool(_PROGRAM_LINE.match(line)) and line[0] != "@"


def after_line(line: str, state: State, text: list[str], formatted: list[str]) -> State:
    """What is open behind the line; its text and what f-strings have in braces are appended."""
    if state.quote:
        end = _STRING_END[state.quote].match(line)
        if end is None:
            return _in_string(line, state.quote, state.depth)
        line = line[end.end() :]
    opened = last = ""

    def bare(piece: re.Match[str]) -> str:
        nonlocal opened, last
        whole, opened, last = piece["whole"], piece["open"] or "", piece.group()
        if "f" in (piece["prefix"] or "").lower():
            formatted.extend(_IN_BRACES.findall(piece.group()))
        return '""' if whole or len(opened) == 3 or (opened and line.endswith("\\")) else "'" if opened else ""

    plain = _PIECE.sub(bare, line) if _HAS_PIECE.search(line) else line
    text.append(plain)
    depth = max(0, state.depth + sum(map(plain.count, "([{")) - sum(map(plain.count, ")]}")))
    if opened:
        return _in_string(line, opened, depth)
    is_continued = last == "\\"
    return State(depth=depth, is_continued=is_continued) if depth or is_continued else _CLOSED


def _in_string(line: str, quote: str, depth: int) -> State:
    """Behind a line that ends in a string: unless that may be, the line is no Python, and what it opens is void."""
    return State(quote, depth) if len(quote) == 3 or line.endswith("\\") else State(depth=depth)


def _reads_as_python(text: str) -> bool:
    return not _NOT_PYTHON.search(_KEYWORD.sub("&", _ELLIPSIS.sub("0", text)))

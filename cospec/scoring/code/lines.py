"""Which lines of a text look like Python, told by its lines alone: nothing a model wrote is parsed in this process.

A parser can be made slow, or made to overflow the stack, by what it parses; this takes one pass.
"""

import re
from collections.abc import Iterator

_KEYWORD_LINE = re.compile(
    r"(?:async\s+)?(?:def|class)\s+\w+\s*[(:\[]"
    r"|(?:import\s+[\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+(?:\s+as\s+\w+)?)*|from\s+[\w.]+\s+import\s+[\w*(].*)\s*(?:[#;\\].*)?$"
    r"|(?:if|elif|for|while|with|match|case|except)\b.*:"
    r"|(?:else|try|finally|except)\s*:"
    r"|(?:return|raise|assert|yield|del|global|nonlocal|await)\b"
    r"|(?:pass|break|continue)\s*(?:[#;].*)?$"
)
# An assignment, a call, a decorator, a comment, a literal, the end of something opened before.
_OTHER_LINE = re.compile(
    r"@\w|#|[)\]}]|[rbfuRBFU]{0,2}[\"']|\(|\[|\{"
    r"|[A-Za-z_][\w.]*(?:\[[^\]]*\])*(?:\s*,\s*\*?[A-Za-z_][\w.]*(?:\[[^\]]*\])*)*\s*(?::[^=]*)?(?:[-+*/%&|^@]|//|\*\*|<<|>>)?=(?!=)"
    r"|[A-Za-z_][\w.]*\("
)
_TOKEN = re.compile(r"'''|\"\"\"|['\"#()\[\]{}]")
_STRING = {quote: re.compile(rf"(?:\\.|[^{quote}\\])*{quote}") for quote in ("'", '"')}
_PROGRAM_LINE = re.compile(r"@\w|(?:async\s+)?(?:def|class)\s+\w|import\s|from\s+[\w.]+\s+import\s")
_MAX_LOOKED_AT = 500


def is_code(line: str) -> bool:
    """The line, its indentation aside, can begin a Python statement; prose seldom can."""
    text = line.strip()[:_MAX_LOOKED_AT]
    return bool(_KEYWORD_LINE.match(text) or _OTHER_LINE.match(text))


def starts_program(line: str) -> bool:
    """The line begins a definition, an import or a decorator at the left margin: hardly ever prose."""
    return bool(re.match(r"@\w|(?:async\s+)?(?:def|class)\s+\w|import\s|from\s+[\w.]+\s+import\s", line)) and is_code(
        line
    )


def indent_of(line: str) -> int:
    """Width of the line's indentation."""
    text = line.expandtabs(4)
    return len(text) - len(text.lstrip(" "))


def statement_starts(lines: list[str]) -> Iterator[int]:
    """Indices of the lines at the left margin where a statement may begin: outside strings and brackets."""
    inside: str | None = None
    depth = 0
    for index, line in enumerate(lines):
        if inside is None and depth == 0 and line.strip() and not line[0].isspace():
            yield index
        inside, depth = _state_after(line, inside, depth)


def _state_after(line: str, inside: str | None, depth: int) -> tuple[str | None, int]:
    """The triple quote that is open behind the line, and the number of open brackets."""
    position = 0
    while True:
        if inside is not None:
            end = line.find(inside, position)
            if end < 0:
                return inside, depth
            position, inside = end + len(inside), None
        token = _TOKEN.search(line, position)
        if token is None or token.group() == "#":
            return None, depth
        position, text = token.end(), token.group()
        if text in ("'''", '"""'):
            inside = text
        elif text in _STRING:
            string = _STRING[text].match(line, position)
            # Without its end the line is no Python, and nothing behind it counts.
            if string is None:
                return None, depth
            position = string.end()
        else:
            depth = depth + 1 if text in "([{" else max(0, depth - 1)

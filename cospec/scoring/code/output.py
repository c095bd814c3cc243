"""What a program printed against what it should have printed."""

_SHOWN = 80


def difference(printed: str, expected: str) -> str | None:
    """The first line that differs, in words; None where the texts agree.

    Lines are compared as text, so `1.0` is not `1`. Blanks at the end of a line, and empty lines at the end of the
    text, do not count.
    """
    found, wanted = _lines(printed), _lines(expected)
    for number, (one, other) in enumerate(zip(found, wanted, strict=False), start=1):
        if one != other:
            return f"line {number} is {one[:_SHOWN]!r}, expected {other[:_SHOWN]!r}"
    if len(found) != len(wanted):
        return f"{len(found)} lines, expected {len(wanted)}"
    return None


def _lines(text: str) -> list[str]:
    lines = [line.rstrip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    return lines

"""What a program printed against what it should have printed."""

from decimal import Decimal, InvalidOperation

_SHOWN = 80


def difference(printed: str, expected: str) -> str | None:
    """The first line that differs, in words; None where the texts agree.

    As LiveCodeBench's grader has it: blanks around the text and around each line do not count, and lines that are not
    the same text are the same if both are numbers with blanks between them, of the same values (`1.0  2` and `1 2`).
    """
    found, wanted = _lines(printed), _lines(expected)
    for number, (one, other) in enumerate(zip(found, wanted, strict=False), start=1):
        if one != other and not _same_numbers(one, other):
            return f"line {number} is {one[:_SHOWN]!r}, expected {other[:_SHOWN]!r}"
    if len(found) != len(wanted):
        return f"{len(found)} lines, expected {len(wanted)}"
    return None


def _lines(text: str) -> list[str]:
    text = text.strip()
    return [line.strip() for line in text.split("\n")] if text else []


def _same_numbers(one: str, other: str) -> bool:
    try:
        return [Decimal(word) for word in one.split()] == [Decimal(word) for word in other.split()]
    except InvalidOperation:
        return False

"""Requests that may fail: what one side answers the other, and what becomes of it there."""

import builtins
from typing import Any, NamedTuple

from cospec.scoring.code.jail.channel import ChannelClosed
from cospec.scoring.code.jail.names import lines_in

RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""Everything code can raise, short of a class of its own below BaseException: that ends the process."""

_MAX_TEXT = 1000


class Failure(NamedTuple):
    """An exception of the other side: the nearest of the interpreter's own types, if it has one that is an
    ordinary exception, and what it said."""

    kind: str | None
    message: str

    def exception(self) -> Exception:
        """The exception to raise on this side, of a type that this side knows."""
        assert self.kind is not None
        error = vars(builtins)[self.kind]
        try:
            found: Exception = error(self.message)
        # UnicodeDecodeError and its like want more than a text.
        except TypeError:
            return ValueError(self.message)
        return found


def raised(error: BaseException, file_name: str) -> list[Any]:
    """The answer that tells of ``error``, with the line of ``file_name`` where it arose."""
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    try:
        text = str(error)
    # Broad on purpose: an exception class of the program may fail in any way.
    except RAISED:
        text = "no text"
    return ["raised", names, type(error).__name__, text[:_MAX_TEXT], _line(error, file_name)]


def _line(error: BaseException, file_name: str) -> int | None:
    if isinstance(error, SyntaxError) and error.filename == file_name:
        return error.lineno
    lines = lines_in(file_name, error)
    return lines[-1] if lines else None


def failure(answer: list[Any]) -> Failure | None:
    """What an answer tells of; None for one that holds a value. ChannelClosed for anything else, as from a liar."""
    if answer[0] == "ok" and len(answer) == 2:
        return None
    try:
        _, names, own_name, text, line = answer
        place = "" if line is None else f" (line {int(line)} of the program)"
        kind = next((str(name) for name in names if _is_exception(name)), None)
    except (TypeError, ValueError) as error:
        raise ChannelClosed("something that is no reply") from error
    return Failure(kind, f"{own_name}: {text}{place}")


def _is_exception(name: Any) -> bool:
    found = vars(builtins).get(name)
    return isinstance(found, type) and issubclass(found, Exception)

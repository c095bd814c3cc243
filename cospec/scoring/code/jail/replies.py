"""Requests that may fail: what one side answers the other, and what becomes of it there."""

import builtins
import contextlib
from typing import Any, NamedTuple

from cospec.scoring.code.jail.channel import ChannelClosed
from cospec.scoring.code.jail.codec import NotPlainError, decode, encode
from cospec.scoring.code.jail.names import lines_in

RAISED = (Exception, SystemExit, KeyboardInterrupt, GeneratorExit)
"""Everything code can raise, short of a class of its own below BaseException: that ends the process."""

_MAX_TEXT = 1 << 16


class Failure(NamedTuple):
    """An exception of the other side: the nearest of the interpreter's own types, if it has one that is an
    ordinary exception; its text, its arguments if they were plain, and the type and place for whoever reports it."""

    kind: str | None
    text: str
    arguments: tuple[Any, ...] | None
    own_name: str
    place: str

    @property
    def message(self) -> str:
        """All of it in one line."""
        return f"{self.own_name}: {self.text}" + (f" ({self.place})" if self.place else "")

    def exception(self) -> Exception:
        """The exception to raise on this side, of a type that this side knows; type and place are its note."""
        assert self.kind is not None
        error = self._rebuilt(vars(builtins)[self.kind])
        own_name = self.own_name if self.own_name != type(error).__name__ else ""
        if note := ", ".join(filter(None, (own_name, self.place))):
            error.add_note(note)
        return error

    def _rebuilt(self, kind: type[Exception]) -> Exception:
        """With the arguments where these give the same text, as they need not if the class has its own."""
        # Broad on purpose: some types are particular about their arguments, each in its own way.
        with contextlib.suppress(Exception):
            error = kind(*(self.arguments or ()))
            if str(error) == self.text:
                return error
        try:
            return kind(self.text)
        # UnicodeDecodeError and its like want more than a text.
        except TypeError:
            return ValueError(self.text)


def raised(error: BaseException, file_name: str) -> list[Any]:
    """The answer that tells of ``error``, with the line of ``file_name`` where it arose."""
    names = [kind.__name__ for kind in type(error).__mro__ if kind.__module__ == "builtins"]
    try:
        text = str(error)
    # Broad on purpose: an exception class of the program may fail in any way.
    except RAISED:
        text = "no text"
    arguments = _plain_arguments(error) if len(text) <= _MAX_TEXT else None
    return ["raised", names, type(error).__name__, text[:_MAX_TEXT], _line(error, file_name), arguments]


def _plain_arguments(error: BaseException) -> Any:
    """The arguments as `encode` writes them; None where one is no plain value."""
    # What is raised may be a class of the program with an `args` of any kind.
    with contextlib.suppress(*RAISED, NotPlainError):
        # Its own `args` leave the file name out.
        arguments = error.__reduce__()[1] if isinstance(error, OSError) else error.args
        return encode(tuple(arguments), _no_handle)
    return None


def _no_handle(value: Any, *_: Any) -> Any:
    raise NotPlainError(f"a {type(value).__name__}")


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
        _, names, own_name, text, line, encoded = answer
        place = "" if line is None else f"line {int(line)} of the program"
        kind = next((str(name) for name in names if _is_exception(name)), None)
        arguments = None if encoded is None else tuple(decode(encoded, _no_handle))
    except (TypeError, ValueError, NotPlainError) as error:
        raise ChannelClosed("something that is no reply") from error
    return Failure(kind, str(text), arguments, str(own_name), place)


def _is_exception(name: Any) -> bool:
    found = vars(builtins).get(name)
    return isinstance(found, type) and issubclass(found, Exception)

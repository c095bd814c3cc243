"""The program as its tests see it: objects over there, plain values here."""

from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from cospec.scoring.code.jail.channel import Channel, ChannelClosed, receive, send
from cospec.scoring.code.jail.codec import decode, encode
from cospec.scoring.code.jail.replies import RAISED, failure, raised

_MAX_REPLY_BYTES = 32 << 20
# With these, a program would reach into the tests' process.
_NOT_LENT = (eval, exec, compile, open, __import__, getattr, setattr, delattr, globals, locals, vars, breakpoint, input)


class ProgramEndedError(BaseException):
    """The program is gone; no `except Exception` of a test shall pass over it."""


class UnfitTestsError(Exception):
    """The tests themselves cannot be run here: a failure of the benchmark, not of the program."""


class Program:
    """The other side of ``channel``; ``file_name`` is the tests' own, for the places of what they raise."""

    def __init__(self, channel: Channel, file_name: str) -> None:
        self.channel, self.file_name = channel, file_name
        self.objects: dict[int, RemoteObject] = {}
        self.functions: list[Callable[..., Any]] = []
        self.num_requests = 0
        self.ended = ""

    def await_start(self) -> None:
        """Wait until the program's own code has run through."""
        self._value_of(self._next_reply())

    def ask(self, action: str, *arguments: Any) -> Any:
        """Have the program's side do one thing; its value, or the exception it met."""
        self.num_requests += 1
        if self.ended:
            raise ProgramEndedError(self.ended)
        self._send([action, [encode(argument, self._handle_of) for argument in arguments]])
        try:
            return self._value_of(self._next_reply())
        except StopIteration as error:
            if action == "next":
                raise
            # Raised by anything else, it would end a loop of the tests in silence.
            raise RuntimeError(f"the program raised {error}") from error

    def _send(self, message: list[Any]) -> None:
        try:
            send(self.channel.writing, message)
        except ChannelClosed:
            self._end("ended before the last test")

    def _next_reply(self) -> list[Any]:
        while True:
            try:
                reply = receive(self.channel.reading, _MAX_REPLY_BYTES)
            except ChannelClosed as error:
                self._end(f"ended before the last test ({error})")
            if not isinstance(reply, list) or not reply:
                self._end("sent something that is no reply")
            if reply[0] != "callback":
                return reply
            self._send(self._called_back(reply[1:]))

    def _called_back(self, call: list[Any]) -> list[Any]:
        """Call one of the tests' functions for the program."""
        try:
            number, arguments, options = call
            function = self.functions[number]
            value = function(*decode(arguments, self._value_here), **decode(options, self._value_here))
            return ["ok", encode(value, self._handle_of)]
        # Broad on purpose: whatever the function raises is the program's to meet.
        except RAISED as error:
            return raised(error, self.file_name)

    def _value_of(self, reply: list[Any]) -> Any:
        try:
            found = failure(reply)
        except ChannelClosed as error:
            self._end(f"sent {error}")
        if found is None:
            return decode(reply[1], self._value_here)
        if found.kind is None:
            self._end(f"ended itself: {found.message}")
        raise found.exception()

    def _end(self, why: str) -> NoReturn:
        self.ended = f"the program {why}"
        raise ProgramEndedError(self.ended)

    def _value_here(self, name: str, parts: list[Any]) -> Any:
        number = int(parts[0])
        if name == "function":
            return self.functions[number]
        if number not in self.objects:
            self.objects[number] = RemoteObject(self, number, str(parts[1]))
        return self.objects[number]

    def _handle_of(self, value: Any) -> list[Any]:
        if isinstance(value, RemoteObject):
            return ["handle", value._number]
        if not callable(value) or value in _NOT_LENT:
            raise UnfitTestsError(f"they pass the program a {type(value).__name__}, which cannot travel")
        self.functions.append(value)
        return ["function", len(self.functions) - 1]


class RemoteObject:
    """An object of the program. It equals only itself and is in no order: its class has no say in a test."""

    __slots__ = ("_number", "_program", "_type_name")

    def __init__(self, program: Program, number: int, type_name: str) -> None:
        for name, value in (("_program", program), ("_number", number), ("_type_name", type_name)):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        # `copy`, `pickle` and others look for these; they concern this object, not the one over there.
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        return self._program.ask("getattr", self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._program.ask("setattr", self, name, value)

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._program.ask("call", self, arguments, options)

    def __getitem__(self, key: Any) -> Any:
        return self._program.ask("getitem", self, key)

    def __iter__(self) -> Iterator[Any]:
        return self._program.ask("iter", self)

    def __next__(self) -> Any:
        return self._program.ask("next", self)

    def __len__(self) -> int:
        return self._program.ask("len", self)

    def __copy__(self) -> Any:
        return self._program.ask("copy", self)

    def __deepcopy__(self, seen: Any) -> Any:
        return self._program.ask("deepcopy", self)

    def __bool__(self) -> bool:
        return self._program.ask("bool", self)

    def __str__(self) -> str:
        return self._program.ask("str", self)

    def __repr__(self) -> str:
        return f"<{self._type_name} of the program>"

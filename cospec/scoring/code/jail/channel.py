"""Messages between the processes of a run: JSON behind its length, over pipes and socket pairs."""

import json
import os
from typing import Any, NamedTuple

_LENGTH_BYTES = 8
_PIECE = 1 << 20


class Channel(NamedTuple):
    """One side's ends of a pair of pipes."""

    reading: int
    writing: int

    def close(self) -> None:
        """Close both ends."""
        os.close(self.reading)
        os.close(self.writing)


def channel_pair() -> tuple[Channel, Channel]:
    """Two sides that hear each other."""
    (here, from_there), (there, from_here) = os.pipe(), os.pipe()
    return Channel(here, from_here), Channel(there, from_there)


class ChannelClosed(Exception):
    """The other side is gone, or sent something that is no message."""


def send(to: int, message: Any) -> None:
    """Write one message; ChannelClosed when nobody reads any more."""
    # ASCII, so that lone surrogates survive.
    body = json.dumps(message, ensure_ascii=True, separators=(",", ":")).encode("ascii")
    rest = memoryview(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
    try:
        while rest:
            rest = rest[os.write(to, rest) :]
    except (BrokenPipeError, ConnectionResetError) as error:
        raise ChannelClosed("the other side closed the channel") from error


def receive(source: int, max_bytes: int | None = None) -> Any:
    """Read one message; ChannelClosed at the end, for one above ``max_bytes``, and for anything that is not JSON.

    The sender may be hostile: nothing beyond JSON is ever interpreted.
    """
    length = int.from_bytes(_read_exactly(source, _LENGTH_BYTES), "big")
    if max_bytes is not None and length > max_bytes:
        raise ChannelClosed(f"a message of {length} bytes, over the limit of {max_bytes}")
    try:
        return json.loads(_read_exactly(source, length))
    except (ValueError, RecursionError) as error:
        raise ChannelClosed(f"no JSON in a message ({type(error).__name__})") from error


def _read_exactly(source: int, size: int) -> bytes:
    pieces, missing = [], size
    while missing:
        try:
            piece = os.read(source, min(missing, _PIECE))
        except ConnectionResetError as error:
            raise ChannelClosed("the other side closed the channel") from error
        if not piece:
            raise ChannelClosed("the other side closed the channel")
        pieces.append(piece)
        missing -= len(piece)
    return b"".join(pieces)

"""From token ids to text: whole, piece by piece, and up to a stop string.

A text only grows with its tokens, but for its last characters: a token may end inside a character, whose bytes then
show as U+FFFD until the rest is there. `TextStream` holds those back, and decodes a short window instead of the whole.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from transformers import PreTrainedTokenizerBase

_UNFINISHED = "\N{REPLACEMENT CHARACTER}"
#: Bytes of the longest character.
_WIDEST = 4
#: How SentencePiece vocabularies write a single byte.
_BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")


def decode_text(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> str:
    """The text of ``ids`` without special tokens, exactly as its tokens spell it.

    Some tokenizers (Llama 3) ask for a clean-up that takes blanks before punctuation away. It alters code, and a text
    would not only grow any more.
    """
    return str(tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))


def cut_at_stop(text: str, stops: Sequence[str]) -> str:
    """``text`` up to the stop string that is complete first; of several that end in one place, the longest goes."""
    found = [(start + len(stop), start) for stop in stops if stop and (start := text.find(stop)) >= 0]
    return text[: min(found)[1]] if found else text


@dataclass(frozen=True, slots=True)
class StopMatch:
    """A stop string found in a text; ``start`` is its first character's place."""

    stop: str
    start: int


class TextStream:
    """The text of a growing list of ids; ours.

    ``settled`` is what no further token can change. With stop strings `push` says when the first of them is complete,
    of several that one token completes the one that ends first, and of those that end together the longest.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stops: Sequence[str] = ()) -> None:
        self._tokenizer, self._stops = tokenizer, tuple(stops)
        self._longest = max(map(len, self._stops), default=0)
        self.settled = ""
        self._tail = ""
        self._given = 0
        # Ids whose text is decoded anew with each token; the text of the first `_known` of them is settled.
        self._window: list[int] = []
        self._known = 0
        self._known_text = ""

    @property
    def text(self) -> str:
        """The text of all ids so far, as `decode_text` has it."""
        return self.settled + self._tail

    def push(self, token_id: int) -> StopMatch | None:
        """Add one token; the stop string that it completes, if any."""
        if token_id in _special_tokens(self._tokenizer):
            return None
        seen = len(self.settled)
        self._window.append(token_id)
        text = decode_text(self._tokenizer, self._window)
        assert text.startswith(self._known_text), "this tokenizer's text does not only grow with its tokens"
        new = text[len(self._known_text) :]
        if self._inside_bytes(token_id):
            self._tail = new
        elif new.endswith(_UNFINISHED):
            self._tail = new
            self._settle_far_back(text)
        else:
            self._settle(len(self._window), text)
        return self._match(max(0, seen - self._longest + 1))

    def _settle(self, stop: int, text: str, tail: str = "") -> None:
        """The first ``stop`` ids of the window are settled; their text is ``text``, and ``tail`` that of the others."""
        self.settled, self._tail = self.settled + text[len(self._known_text) :], tail
        # The window opens with tokens that show: some decoders take the first blank of a text away.
        behind = self._window[self._known :]
        opening = decode_text(self._tokenizer, behind[: stop - self._known])
        if opening and (not tail or decode_text(self._tokenizer, behind) == opening + tail):
            self._window, stop, text = behind, stop - self._known, opening
        self._known, self._known_text = stop, text

    def _settle_far_back(self, text: str) -> None:
        """Bytes that are no character and lie further back than a character is long stay what they are."""
        stop = len(self._window) - _WIDEST
        if stop - self._known < _WIDEST:
            return
        begin = decode_text(self._tokenizer, self._window[:stop])
        if text.startswith(begin) and len(begin) < len(text):
            self._settle(stop, begin, text[len(begin) :])

    def _inside_bytes(self, token_id: int) -> bool:
        """Byte-fallback decoders read a whole run of single bytes at once: it is settled by the token behind it."""
        token = self._tokenizer.convert_ids_to_tokens(token_id)
        return isinstance(token, str) and _BYTE.fullmatch(token) is not None

    def _match(self, start: int) -> StopMatch | None:
        if not self._stops:
            return None
        text = self.text
        found = [(place + len(stop), place, stop) for stop in self._stops if (place := text.find(stop, start)) >= 0]
        if not found:
            return None
        _, place, stop = min(found)
        return StopMatch(stop, place)

    def piece(self, text: str | None = None) -> str:
        """What can be handed on and was not yet; with ``text``, the final text, all that is left of it.

        Held back is the end that may be the beginning of a stop string.
        """
        if text is None:
            text = self.settled[: len(self.settled) - self._maybe_stop()]
        piece = text[self._given :]
        self._given += len(piece)
        return piece

    def _maybe_stop(self) -> int:
        """Length of the longest end of the settled text that a stop string begins with."""
        longest = min(self._longest - 1, len(self.settled))
        lengths = range(longest, 0, -1)
        return next((n for n in lengths if any(stop.startswith(self.settled[-n:]) for stop in self._stops)), 0)


@functools.lru_cache(maxsize=8)
def _special_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, str]:
    """Ids and names of the tokens that no text shows."""
    added = tokenizer.added_tokens_decoder
    return {token_id: token.content for token_id, token in added.items() if token.special and token.content}


def check_readable(stops: Iterable[str]) -> None:
    """ValueError for a stop string that is none, whatever the tokenizer."""
    if isinstance(stops, str):
        raise ValueError(f"stop is the one string {stops!r}, whose every character would end a text: give a list")
    for stop in stops:
        if not stop:
            raise ValueError("a stop string is empty: every text would end at once; drop it")
        if _UNFINISHED in stop:
            raise ValueError(
                f"stop string {stop!r} holds U+FFFD, which stands for bytes that are no character: use readable text"
            )
        if any("\ud800" <= character <= "\udfff" for character in stop):
            raise ValueError(f"stop string {stop!r} holds half of a surrogate pair, which no text does: drop it")


def check_stops(stops: Sequence[str], tokenizer: PreTrainedTokenizerBase) -> None:
    """ValueError for a stop string that no text of this tokenizer could hold."""
    check_readable(stops)
    for stop in stops:
        for token_id, token in _special_tokens(tokenizer).items():
            if token in stop:
                raise ValueError(
                    f"stop string {stop!r} holds the special token {token!r}, which texts do not show: make it an "
                    f"ending id instead (eos_token_id {token_id})"
                )

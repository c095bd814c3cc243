"""Whether evaluation problems stand among training prompts: word for word, or in long runs of words.

Words are strings of letters, with their vowel signs, and digits; case, Unicode's form and invisible characters do not
count. A run is ``n`` words, 13 as in the appendix of the GPT-3 paper (Brown et al. 2020). In scripts without blanks
every character is a word, and a run is twice as long. A problem of fewer words is looked for as a whole inside the
training texts; one of fewer than 4 (8 characters) would stand in too many, and must be a training text itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cospec.prompt_rows import PromptRow
from cospec.tasks.registry import is_task

# Thai to Lao, Tibetan and Burmese, Khmer, kana, Han: written without blanks.
_UNSPACED = "\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003ffff"
_IS_UNSPACED = re.compile(f"[{_UNSPACED}]")
# Vowel signs, which \w leaves out: without them words of Bengali, Hindi or Telugu would end at every one.
_SIGNS = "".join(
    sign
    for sign in map(chr, range(0x300, 0xFE00))
    if unicodedata.category(sign) in ("Mn", "Mc") and not _IS_UNSPACED.match(sign)
)
_WORD = re.compile(rf"(?:[^\W{_UNSPACED}]+[{_SIGNS}]*)+|[{_UNSPACED}]")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\ufe00-\ufe0f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]"
)
_MIN_INSIDE = 4
# An odd 64-bit multiplier; the hash wraps around. A hit is compared word by word with one run of its hash: that two
# runs of the evaluation texts share a hash has odds of about 1 to 300,000 for ten million runs.
_BASE = np.uint64(0x9E3779B97F4A7C15)
_CHUNK_WORDS = 2_000_000


@dataclass(frozen=True, slots=True)
class Contamination:
    """Evaluation rows that stand among the training rows.

    ``exact_ids`` are equal to a training prompt but for white space and case; ``overlap_ids`` share a run of ``n``
    words with one, or stand as a whole in one where they have fewer. Exact ones nearly always are among these too.
    """

    num_train: int
    num_eval: int
    n: int
    exact_ids: tuple[str | int, ...]
    overlap_ids: tuple[str | int, ...]

    @property
    def exact_share(self) -> float:
        """Of the evaluation rows."""
        return len(self.exact_ids) / self.num_eval if self.num_eval else 0.0

    @property
    def overlap_share(self) -> float:
        """Of the evaluation rows."""
        return len(self.overlap_ids) / self.num_eval if self.num_eval else 0.0

    @property
    def ids(self) -> tuple[str | int, ...]:
        """Rows found by either comparison, for leaving them out."""
        return tuple(dict.fromkeys([*self.exact_ids, *self.overlap_ids]))

    def to_json(self) -> dict[str, Any]:
        """Counts, shares and ids."""
        return {
            "num_train": self.num_train,
            "num_eval": self.num_eval,
            "n": self.n,
            "num_exact": len(self.exact_ids),
            "exact_share": self.exact_share,
            "num_overlap": len(self.overlap_ids),
            "overlap_share": self.overlap_share,
            "exact_ids": list(self.exact_ids),
            "overlap_ids": list(self.overlap_ids),
        }


def contamination(train_rows: Iterable[PromptRow], eval_rows: Sequence[PromptRow], n: int = 13) -> Contamination:
    """Which evaluation rows stand among the training rows.

    A row that one of our tasks wrote is its bare question, instructions and few-shot examples left aside. Of other
    rows all turns are compared: those of every role in training rows, the user's in evaluation rows. ``train_rows`` are
    read once. ValueError for ``n`` below 1 and for rows of bare token ids.
    """
    if n < 1:
        raise ValueError(f"n is {n}: runs have at least 1 word")
    owners, texts = _problems(eval_rows)
    exact_keys = [_exact_key(text) for text in texts]
    words = _EvalWords([_words(text) for text in texts], n)
    wanted, exact, num_train = set(exact_keys), set[str](), 0
    for num, chunk in _chunks(train_rows):
        num_train += num
        exact |= wanted.intersection(map(_exact_key, chunk))
        words.look_for([_words(text) for text in chunk])
    equal = {owner for owner, key in zip(owners, exact_keys, strict=True) if key in exact}
    shared = {owner for owner, found in zip(owners, words.found, strict=True) if found}
    return Contamination(
        num_train,
        len(eval_rows),
        n,
        tuple(row.id for index, row in enumerate(eval_rows) if index in equal),
        tuple(row.id for index, row in enumerate(eval_rows) if index in shared),
    )


def texts_of(row: PromptRow, roles: Sequence[str] | None = None) -> list[str]:
    """The texts of a row, in a normal form: its bare question where one of our tasks wrote it, else all it holds.

    Of a chat these are the turns of ``roles`` (all of them if None, or if it has none of these).
    """
    question = row.extra.get("question")
    texts = [question] if isinstance(question, str) and question.strip() else []
    if not (texts and row.task is not None and is_task(row.task)):
        turns = row.messages or []
        chosen = [turn for turn in turns if roles is None or turn["role"] in roles] or turns
        texts += [row.prompt] if row.prompt is not None else [turn["content"] for turn in chosen]
    if not texts:
        raise ValueError(f"row {row.id!r} has token ids and no text: contamination is found in words")
    return list(dict.fromkeys(map(_normal, texts)))


def _problems(rows: Sequence[PromptRow]) -> tuple[list[int], list[str]]:
    """Every text of the evaluation rows, and the index of the row it is of."""
    pairs = [(index, text) for index, row in enumerate(rows) for text in texts_of(row, ("user",))]
    return [index for index, _ in pairs], [text for _, text in pairs]


def _normal(text: str) -> str:
    return unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).casefold()


def _exact_key(text: str) -> str:
    return "".join(text.split())


def _words(text: str) -> list[str]:
    return _WORD.findall(text)


def _chunks(rows: Iterable[PromptRow]) -> Iterator[tuple[int, list[str]]]:
    """Texts in portions that fit the memory, with how many rows they are of."""
    texts: list[str] = []
    num = size = 0
    for row in rows:
        found = texts_of(row)
        texts += found
        num += 1
        size += sum(map(len, found))
        if size > 6 * _CHUNK_WORDS:
            yield num, texts
            texts, num, size = [], 0, 0
    yield num, texts


class _EvalWords:
    """The words of the evaluation texts, looked for in training texts portion by portion."""

    def __init__(self, texts: Sequence[list[str]], n: int) -> None:
        self.found = np.zeros(len(texts), dtype=bool)
        self._vocabulary = {word: number for number, word in enumerate(set(chain.from_iterable(texts)), start=1)}
        self._whole: dict[tuple[str, ...], list[int]] = {}
        by_length: dict[int, list[int]] = {}
        for index, words in enumerate(texts):
            dense = 2 * sum(map(bool, map(_IS_UNSPACED.match, words))) > len(words)
            scale = 2 if dense else 1
            if len(words) < min(n, _MIN_INSIDE) * scale:
                self._whole.setdefault(tuple(words), []).append(index)
            else:
                by_length.setdefault(min(len(words), n * scale), []).append(index)
        self._whole.pop((), None)
        self._runs = [
            (np.array(group), _EvalRuns(*self._numbers([texts[index] for index in group]), length))
            for length, group in by_length.items()
        ]

    def look_for(self, texts: Sequence[list[str]]) -> None:
        """Mark the evaluation texts that share a run with one of these, or stand in one."""
        if self._whole:
            for words in texts:
                self.found[self._whole.get(tuple(words), [])] = True
        ids, rows = self._numbers(texts)
        for group, runs in self._runs:
            self.found[group[runs.found_in(ids, rows)]] = True

    def _numbers(self, texts: Sequence[list[str]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Ids of all words, 0 for those that no evaluation text has, and the text that each is of."""
        lengths = np.fromiter(map(len, texts), dtype=np.int64, count=len(texts))
        # Every step of this runs in C: there are millions of words.
        found = map(self._vocabulary.get, chain.from_iterable(texts), repeat(0))
        ids = np.fromiter(found, dtype=np.int64, count=int(lengths.sum()))
        return ids, np.repeat(np.arange(len(texts)), lengths)


class _EvalRuns:
    """The runs of one length of some evaluation texts, which are given as ids of words and the text each is of."""

    def __init__(self, ids: NDArray[np.int64], rows: NDArray[np.int64], length: int) -> None:
        self._ids, self._length = ids, length
        hashes, starts = self._windows(ids, rows)
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._starts = hashes[order], starts[order]
        # The text that a window begins in.
        self._rows = rows[self._starts]

    def found_in(self, ids: NDArray[np.int64], rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """The texts that share a run with one of these, some of them repeated."""
        hashes, starts = self._windows(ids, rows)
        first = np.searchsorted(self._hashes, hashes)
        first[first == len(self._hashes)] = 0
        hits = np.flatnonzero(self._hashes[first] == hashes)
        same = np.ones(len(hits), dtype=bool)
        for offset in range(self._length):
            same &= ids[starts[hits] + offset] == self._ids[self._starts[first[hits]] + offset]
        return self._texts(np.unique(first[hits[same]]))

    def _texts(self, begins: NDArray[np.int64]) -> NDArray[np.int64]:
        """The texts of every window whose hash is that of one of these positions."""
        ends = np.searchsorted(self._hashes, self._hashes[begins], side="right")
        edges = np.zeros(len(self._hashes) + 1, dtype=np.int64)
        edges[begins] += 1
        edges[ends] -= 1
        return self._rows[np.cumsum(edges[:-1]) > 0]

    def _windows(self, ids: NDArray[np.int64], rows: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
        """Hash and start of every run that lies within one text."""
        num = max(0, len(ids) - self._length + 1)
        hashes = np.zeros(num, dtype=np.uint64)
        for offset in range(self._length):
            hashes = hashes * _BASE + ids[offset : offset + num].astype(np.uint64)
        starts = np.flatnonzero(rows[:num] == rows[len(rows) - num :])
        return hashes[starts], starts

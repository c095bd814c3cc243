"""Whether evaluation problems stand among training prompts: word for word, or in long runs of words.

Words are strings of letters and digits, case aside; a run is ``n`` of them, 13 as in the appendix of the GPT-3 paper
(Brown et al. 2020). A problem of fewer words is compared as a whole. Languages written without blanks have few words:
for them only the exact comparison says much.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cospec.prompt_rows import PromptRow

_WORD = re.compile(r"\w+")
# An odd 64-bit multiplier; the hash wraps around. A hit is compared word by word with one run of its hash: that two
# runs of the evaluation texts share a hash has odds of about 1 to 300,000 for ten million runs.
_BASE = np.uint64(0x9E3779B97F4A7C15)
_CHUNK_WORDS = 2_000_000


@dataclass(frozen=True, slots=True)
class Contamination:
    """Evaluation rows that stand among the training rows.

    ``exact_ids`` are equal to a training prompt but for white space and case; ``overlap_ids`` share a run of ``n``
    words with one, or have the same words as one where they have fewer. Exact ones nearly always are among these too.
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
    """Which evaluation rows stand among the training rows; instructions and few-shot examples are left aside.

    ``train_rows`` are read once. ValueError for ``n`` below 1 and for rows of bare token ids.
    """
    if n < 1:
        raise ValueError(f"n is {n}: runs have at least 1 word")
    texts = [question_of(row) for row in eval_rows]
    exact_keys, runs = [_exact_key(text) for text in texts], _EvalRuns(texts, n)
    wanted, exact, num_train = set(exact_keys), set[str](), 0
    for chunk in _chunks(train_rows):
        num_train += len(chunk)
        exact |= wanted.intersection(map(_exact_key, chunk))
        runs.look_for([_words(text) for text in chunk])
    return Contamination(
        num_train,
        len(texts),
        n,
        tuple(row.id for row, key in zip(eval_rows, exact_keys, strict=True) if key in exact),
        tuple(row.id for row, found in zip(eval_rows, runs.found, strict=True) if found),
    )


def question_of(row: PromptRow) -> str:
    """The bare question of a row: its field `question` where a task wrote it, else its prompt or last user turn."""
    question = row.extra.get("question")
    if isinstance(question, str) and question.strip():
        return question
    if row.prompt is not None:
        return row.prompt
    turns = [message["content"] for message in row.messages or () if message["role"] == "user"]
    if not turns:
        raise ValueError(f"row {row.id!r} has token ids and no text: contamination is found in words")
    return str(turns[-1])


def _exact_key(text: str) -> str:
    return "".join(text.split()).casefold()


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


def _chunks(rows: Iterable[PromptRow]) -> Iterator[list[str]]:
    """Texts in portions that fit the memory."""
    texts: list[str] = []
    size = 0
    for row in rows:
        texts.append(question_of(row))
        size += len(texts[-1])
        if size > 6 * _CHUNK_WORDS:
            yield texts
            texts, size = [], 0
    yield texts


class _EvalRuns:
    """The runs of words of the evaluation texts, looked for in training texts portion by portion."""

    def __init__(self, texts: Sequence[str], n: int) -> None:
        self._n = n
        self.found = np.zeros(len(texts), dtype=bool)
        self._vocabulary: dict[str, int] = {}
        self._short: dict[tuple[str, ...], list[int]] = {}
        split = [_words(text) for text in texts]
        for index, words in enumerate(split):
            if 0 < len(words) < n:
                self._short.setdefault(tuple(words), []).append(index)
            for word in words:
                self._vocabulary.setdefault(word, len(self._vocabulary) + 1)
        self._ids, hashes, starts = self._windows(split)
        order = np.argsort(hashes, kind="stable")
        self._hashes, self._starts = hashes[order], starts[order]
        # The text that a window begins in.
        self._rows = np.searchsorted(np.cumsum([len(words) for words in split]), self._starts, side="right")

    def look_for(self, texts: Sequence[list[str]]) -> None:
        """Mark the rows that share a run with one of these texts."""
        if self._short:
            for words in texts:
                if len(words) < self._n:
                    self.found[self._short.get(tuple(words), [])] = True
        if not len(self._hashes):
            return
        ids, hashes, starts = self._windows(texts)
        first = np.searchsorted(self._hashes, hashes)
        first[first == len(self._hashes)] = 0
        hits = np.flatnonzero(self._hashes[first] == hashes)
        same = np.ones(len(hits), dtype=bool)
        for offset in range(self._n):
            same &= ids[starts[hits] + offset] == self._ids[self._starts[first[hits]] + offset]
        self._mark(np.unique(first[hits[same]]))

    def _mark(self, begins: NDArray[np.int64]) -> None:
        """The rows of every window whose hash is that of one of these positions."""
        ends = np.searchsorted(self._hashes, self._hashes[begins], side="right")
        edges = np.zeros(len(self._hashes) + 1, dtype=np.int64)
        edges[begins] += 1
        edges[ends] -= 1
        self.found[self._rows[np.cumsum(edges[:-1]) > 0]] = True

    def _windows(self, texts: Sequence[list[str]]) -> tuple[NDArray[np.int64], NDArray[np.uint64], NDArray[np.int64]]:
        """Ids of all words, and hash and start of every run that lies within one text.

        0 stands for the words that no evaluation text has.
        """
        total = sum(map(len, texts))
        # Every step of this runs in C: there are millions of words.
        found = map(self._vocabulary.get, chain.from_iterable(texts), repeat(0))
        ids = np.fromiter(found, dtype=np.int64, count=total)
        num = max(0, total - self._n + 1)
        hashes = np.zeros(num, dtype=np.uint64)
        for offset in range(self._n):
            hashes = hashes * _BASE + ids[offset : offset + num].astype(np.uint64)
        within = np.ones(num, dtype=bool)
        end = 0
        for words in texts:
            end += len(words)
            # Runs that reach over the end of a text.
            within[max(0, end - self._n + 1) : end] = False
        starts = np.flatnonzero(within)
        return ids, hashes[starts], starts

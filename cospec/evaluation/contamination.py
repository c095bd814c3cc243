"""Whether evaluation problems stand among training prompts: word for word, or in long runs of words.

Words are strings of letters and digits, case aside; a run is ``n`` of them, 13 as in the appendix of the GPT-3 paper
(Brown et al. 2020). A problem of fewer words is compared as a whole. Languages written without blanks have few words:
for them only the exact comparison says much.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cospec.prompt_rows import PromptRow

_WORD = re.compile(r"\w+")
# An odd 64-bit multiplier; the hash is only a sieve, every hit is compared word by word.
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
        self._vocabulary: dict[str, int] = {}
        self.found = np.zeros(len(texts), dtype=bool)
        self._rows_of_run: dict[tuple[str, ...], list[int]] = {}
        self._rows_of_short: dict[tuple[str, ...], list[int]] = {}
        for index, words in enumerate(map(_words, texts)):
            if 0 < len(words) < n:
                self._rows_of_short.setdefault(tuple(words), []).append(index)
            for start in range(len(words) - n + 1):
                self._rows_of_run.setdefault(tuple(words[start : start + n]), []).append(index)
        for run in self._rows_of_run:
            for word in run:
                self._vocabulary.setdefault(word, len(self._vocabulary) + 1)
        ids = np.array([[self._vocabulary[word] for word in run] for run in self._rows_of_run], dtype=np.uint64)
        self._hashes = np.unique(_hash(ids.reshape(-1, n).T, n)) if len(ids) else np.empty(0, dtype=np.uint64)

    def look_for(self, texts: Sequence[list[str]]) -> None:
        """Mark the rows that share a run with one of these texts."""
        if self._rows_of_short:
            for words in texts:
                if len(words) < self._n:
                    self._mark(self._rows_of_short.get(tuple(words)))
        long = [words for words in texts if len(words) >= self._n]
        if not long or not len(self._hashes):
            return
        flat = [word for words in long for word in words]
        # 0 stands for every word that no evaluation text has.
        get = self._vocabulary.get
        ids = np.fromiter((get(word, 0) for word in flat), dtype=np.uint64, count=len(flat))
        windows = [ids[offset : len(ids) - self._n + 1 + offset] for offset in range(self._n)]
        inside = np.ones(len(ids) - self._n + 1, dtype=bool)
        for end in np.cumsum([len(words) for words in long])[:-1]:
            # Runs that reach over the end of a text.
            inside[end - self._n + 1 : end] = False
        hits = np.flatnonzero(np.isin(_hash(windows, self._n), self._hashes) & inside)
        for start in hits:
            self._mark(self._rows_of_run.get(tuple(flat[start : start + self._n])))

    def _mark(self, rows: list[int] | None) -> None:
        if rows is not None:
            self.found[rows] = True


def _hash(windows: Sequence[NDArray[np.uint64]] | NDArray[np.uint64], n: int) -> NDArray[np.uint64]:
    """A hash of each window, given position by position; it wraps around as unsigned integers do."""
    total = np.zeros_like(windows[0])
    for offset in range(n):
        total = total * _BASE + windows[offset]
    return total

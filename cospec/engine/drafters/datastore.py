"""A datastore on disk: token ids of many texts and the order of all their suffixes, read through memory maps.

`tokens.bin` holds the ids as little-endian int32 (an id is never narrowed further), a separator behind every text;
`suffixes.bin` the places where suffixes begin, in the order of what stands there; `datastore.json` what both are, and
which tokenizer the ids belong to.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOKENS, SUFFIXES, CONFIG = "tokens.bin", "suffixes.bin", "datastore.json"
LAYOUT_VERSION = 1
#: Behind every text; no token has this id, so that no match and no continuation crosses it.
SEPARATOR = -1


@dataclass(frozen=True, slots=True)
class DatastoreInfo:
    """What a datastore holds. ``num_tokens`` counts the separators too; digests are SHA-256."""

    num_tokens: int
    num_texts: int
    largest_id: int
    place_bytes: int
    tokens_digest: str
    suffixes_digest: str
    tokenizer_digest: str
    layout_version: int = LAYOUT_VERSION

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if type(value) is not (str if name.endswith("_digest") else int):
                raise ValueError(f"{name} is {value!r}")
        if self.place_bytes not in (4, 8):
            raise ValueError(f"place_bytes is {self.place_bytes}")


def file_digest(path: Path) -> str:
    """SHA-256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def read_info(directory: Path) -> DatastoreInfo:
    """What the datastore says of itself; ValueError if this is none, or of another version."""
    path = directory / CONFIG
    if not path.is_file():
        found = "holds no" if directory.is_dir() else "does not exist, so there is no"
        raise ValueError(f"{str(directory)!r} {found} {CONFIG}: name a directory that `cospec datastore build` wrote")
    try:
        info = DatastoreInfo(**json.loads(path.read_text(encoding="utf-8")))
    except (ValueError, TypeError) as error:
        raise ValueError(f"{str(path)!r} cannot be read ({error}): build the datastore anew") from error
    if info.layout_version != LAYOUT_VERSION:
        raise ValueError(
            f"the datastore in {str(directory)!r} has layout version {info.layout_version}, this is {LAYOUT_VERSION}: "
            "build it anew"
        )
    return info


class Datastore:
    """An opened datastore, its two files compared with their digests; ValueError for one that is damaged."""

    def __init__(self, directory: Path) -> None:
        self.info = info = read_info(directory)
        self.tokens = _mapped(directory / TOKENS, np.dtype("<i4"), info.num_tokens, info.tokens_digest)
        places = np.dtype(f"<i{info.place_bytes}")
        self.suffixes = _mapped(directory / SUFFIXES, places, info.num_tokens, info.suffixes_digest)

    def find(self, ids: Sequence[int]) -> tuple[int, int]:
        """The suffixes that begin with ``ids`` and go on, as a range of `suffixes`; empty where there are none."""
        every, width = range(len(self.suffixes)), len(ids) + 1

        def start_of(place: int) -> list[int]:
            start = int(self.suffixes[place])
            found: list[int] = self.tokens[start : start + width].tolist()
            return found

        first = bisect_left(every, [*ids, SEPARATOR + 1], key=start_of)
        return first, bisect_right(every, [*ids, np.iinfo(np.int32).max], lo=first, key=start_of)

    def continuation(self, ids: Sequence[int], fewest: int, most_hits: int, length: int) -> list[int]:
        """What most often follows the longest end of ``ids`` that occurs, ``fewest`` tokens at least; [] without one.

        An occurrence at the end of a text counts for nothing. Token by token the most frequent one, among the
        occurrences that have agreed so far, and of equals the smallest id; up to ``length`` of them. Of more than
        ``most_hits`` occurrences as many are counted, evenly spread over their order: shares stay what they are.
        """
        # Where an end occurs and goes on, all shorter ones do.
        shortest, longest = fewest - 1, len(ids)
        best: tuple[int, int] | None = None
        while shortest < longest:
            middle = (shortest + longest + 1) // 2
            first, stop = self.find(ids[-middle:])
            if first < stop:
                shortest, best = middle, (first, stop)
            else:
                longest = middle - 1
        return self._most_frequent(best, shortest, most_hits, length) if best else []

    def _most_frequent(self, found: tuple[int, int], num_matched: int, most_hits: int, length: int) -> list[int]:
        first, stop = found
        num_hits = min(stop - first, most_hits)
        hits = first + np.arange(num_hits) * (stop - first) // num_hits
        starts = self.suffixes[hits].astype(np.int64) + num_matched
        # The last token is a separator, which ends what would run beyond it.
        places = np.minimum(starts[:, None] + np.arange(length), len(self.tokens) - 1)
        following, chain = np.asarray(self.tokens[places]), list[int]()
        for place in range(length):
            ids, counts = np.unique(following[:, place], return_counts=True)
            counts[ids == SEPARATOR] = 0
            if not counts.any():
                break
            chain.append(int(ids[counts.argmax()]))
            following = following[following[:, place] == chain[-1]]
        return chain


def _mapped(path: Path, kind: np.dtype[Any], num: int, digest: str) -> NDArray[Any]:
    if not path.is_file():
        raise ValueError(f"the datastore in {str(path.parent)!r} has no {path.name}: copy it whole, or build it anew")
    if path.stat().st_size != num * kind.itemsize or file_digest(path) != digest:
        raise ValueError(f"{str(path)!r} is damaged: its bytes are not those that were built; build the datastore anew")
    return np.memmap(path, kind, mode="r", shape=(num,))

"""What decides the samples of an evaluation, as it lies beside them: read strictly, and matched with what is wanted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: What the results do not depend on: recorded, once for every kind that took part.
ENVIRONMENTS = "environments"
#: Parts of the settings that hold one entry per name; a later run may add names.
BY_NAME = ("tasks", "methods")
#: Settings that earlier versions did not have, and how they decoded.
_LATER: Mapping[str, Any] = {"stop": [], "cost_ratio": None, "packed": False, "drafter": None}
#: Digests that earlier versions did not record: where one side has none, nothing is known.
_LATER_DIGESTS = frozenset({"drafter_digest", "judge_digest"})
#: What decides the verdicts alone, so that judging the same texts again makes up for a change.
_JUDGING = ("scorer", "scorer_digest", "isolation")

Difference = tuple[str, Any, Any]


def read_settings(path: Path) -> dict[str, Any]:
    """The settings of an evaluation; ValueError for a file that holds none."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): restore it from a copy, or name another directory") from error
    parts = [found.get(part) for part in BY_NAME] if isinstance(found, dict) else [None]
    entries = [entry for part in parts if isinstance(part, dict) for entry in part.values()]
    environments = found.get(ENVIRONMENTS, []) if isinstance(found, dict) else None
    if (
        not all(isinstance(part, dict) for part in parts)
        or not all(isinstance(entry, dict | str) for entry in entries)
        or not (isinstance(environments, list) and all(isinstance(entry, dict) for entry in environments))
    ):
        raise ValueError(
            f"{path} holds no settings of an evaluation: restore it from a copy, or name another directory"
        )
    return found


def merged(before: dict[str, Any], wanted: dict[str, Any], directory: Path, *, rescore: bool = False) -> dict[str, Any]:
    """Both settings in one, the names of the earlier ones first; ValueError as `refuse_differences` raises it."""
    refuse_differences(before, wanted, directory, rescore=rescore)
    joined = {part: before.get(part, {}) | wanted.get(part, {}) for part in BY_NAME}
    known, now = before.get(ENVIRONMENTS, []), wanted.get(ENVIRONMENTS, [])
    return wanted | joined | {ENVIRONMENTS: known + [entry for entry in now if entry not in known]}


def refuse_differences(
    before: Mapping[str, Any],
    wanted: Mapping[str, Any],
    directory: Path,
    *,
    rescore: bool = False,
    partial: bool = False,
) -> None:
    """ValueError naming what differs, names that only one side has aside.

    ``rescore`` lets differences pass that new verdicts make up for; with ``partial``, ``wanted`` is not all there is to
    be compared yet.
    """
    apart = (ENVIRONMENTS, *BY_NAME)
    common = [{key: value for key, value in side.items() if key not in apart} for side in (before, wanted)]
    found = _differing_in(common[0], common[1], partial)
    for part in BY_NAME:
        old, new = before.get(part, {}), wanted.get(part, {})
        for name in [name for name in old if name in new]:
            entries = _differing_in(_entry(old[name]), _entry(new[name]), partial)
            found += [(f"{name}.{key}", was, now) for key, was, now in entries]
    judging = [line for line in found if line[0].rpartition(".")[2] in _JUDGING]
    if len(judging) < len(found):
        raise ValueError(
            f"{directory} holds an evaluation under other settings ({_told(found)}): name another --out, or remove the "
            "directory"
        )
    if judging and not rescore:
        raise ValueError(
            f"{directory} was judged by another scorer ({_told(judging)}), and verdicts of two are not mixed: add "
            "--rescore, which judges the texts that are there again, or name another --out"
        )


def differing(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """(name, before, now) of what is not the same; a setting that is missing has the value it had before it was one.

    Where an arbiter lies is no difference: its digest says which it is.
    """
    both = old.keys() & new.keys()
    left_out = (_LATER_DIGESTS - both) | ({"arbiter"} if "arbiter_digest" in both else set())
    pairs = [
        (key, *(side.get(key, _LATER.get(key)) for side in (old, new)))
        for key in sorted((old.keys() | new.keys()) - left_out)
    ]
    return [(key, was, now) for key, was, now in pairs if was != now]


def _differing_in(old: Mapping[str, Any], new: Mapping[str, Any], partial: bool) -> list[Difference]:
    return [entry for entry in differing(old, new) if not partial or entry[0] in new]


def _entry(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {"rule": value}


def _told(found: list[Difference]) -> str:
    return "; ".join(f"{name} was {was!r}, now {now!r}" for name, was, now in found[:4])

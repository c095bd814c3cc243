"""Rollouts on disk: one JSON line each, in the order in which they end; a run that stopped goes on from its file."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from cospec.engine.decode import Engine
from cospec.engine.record import Rollout, Settings, rollout_from_json
from cospec.engine.request import Request
from cospec.jsonl import append_jsonl, drop_torn_tail, read_jsonl


def read_rollouts(path: Path) -> list[Rollout]:
    """All rollouts of a file; ValueError if there are none, or two of one id."""
    rollouts = [_rollout(row, path) for row in read_jsonl(path)]
    if not rollouts:
        raise ValueError(f"{path} holds no rollouts: write some with `cospec rollout`")
    _refuse_repeated(rollouts, path)
    return rollouts


def _rollout(row: Mapping[str, Any], path: Path) -> Rollout:
    if "blocks" not in row:
        raise ValueError(f"{path} holds no rollouts but other rows, such as {row.get('id')!r}: name another file")
    try:
        return rollout_from_json(row)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _refuse_repeated(rollouts: Sequence[Rollout], path: Path) -> None:
    ids = Counter(str(rollout.id) for rollout in rollouts)
    repeated = [id for id, num in ids.items() if num > 1]
    if repeated:
        raise ValueError(
            f"{path} holds {len(repeated)} ids more than once, such as {repeated[0]!r}: two runs wrote to it, or files "
            "were joined; give every rollout its own id"
        )


def recorded_rollouts(path: Path, requests: Sequence[Request], settings: Settings) -> list[Rollout]:
    """What ``path`` holds of ``requests`` already; ValueError for records of other settings or other prompts.

    Records of further requests are no harm and are passed over. A torn last line is cut off.
    """
    if not path.exists():
        return []
    drop_torn_tail(path)
    prompts = {request.id: tuple(request.prompt_ids) for request in requests}
    kept = []
    for row in read_jsonl(path):
        rollout = _rollout(row, path)
        if difference := _difference(rollout.settings, settings):
            reason = f"setting ({difference})"
        elif rollout.id not in prompts:
            continue
        elif rollout.prompt_ids != prompts[rollout.id]:
            reason = "prompt"
        else:
            kept.append(rollout)
            continue
        raise ValueError(
            f"{path} holds rollout {rollout.id!r} of another {reason}: name another --out or run.dir, or remove it"
        )
    _refuse_repeated(kept, path)
    return kept


def _difference(old: Settings, new: Settings) -> str:
    before, now = _named(old), _named(new)
    return ", ".join(f"{name} was {before[name]!r}, now {now[name]!r}" for name in now if before[name] != now[name])


def _named(settings: Settings) -> dict[str, Any]:
    """The settings by name, those of sampling among them; what ends a text does so in whatever order it is given."""
    named = {name: getattr(settings, name) for name in Settings.__slots__} | dataclasses.asdict(settings.sampling)
    del named["sampling"]
    return named | {name: tuple(sorted(set(named[name]))) for name in ("stop", "eos_token_ids")}


def decode_to_file(
    engine: Engine, requests: Sequence[Request], path: Path, on_rollout: Callable[[Rollout], None]
) -> None:
    """Decode ``requests``, appending each record to ``path`` as it ends and then telling ``on_rollout``."""
    for _, rollout in engine.run(requests):
        append_jsonl(path, [rollout.to_json()])
        on_rollout(rollout)

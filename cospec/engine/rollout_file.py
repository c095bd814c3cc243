"""Rollouts on disk: one JSON line each, in the order in which they end; a run that stopped goes on from its file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from cospec.engine.decode import Engine
from cospec.engine.record import Rollout, Settings, rollout_from_json
from cospec.engine.request import Request
from cospec.jsonl import append_jsonl, drop_torn_tail, read_jsonl


def read_rollouts(path: Path) -> list[Rollout]:
    """All rollouts of a file; ValueError if there are none, or two of one id."""
    rollouts = [rollout_from_json(row) for row in read_jsonl(path)]
    if not rollouts:
        raise ValueError(f"{path} holds no rollouts: write some with `cospec rollout`")
    _refuse_repeated(rollouts, path)
    return rollouts


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
        rollout = rollout_from_json(row)
        if rollout.settings != settings:
            reason = f"setting ({_difference(rollout.settings, settings)})"
        elif rollout.id not in prompts:
            continue
        elif rollout.prompt_ids != prompts[rollout.id]:
            reason = "prompt"
        else:
            kept.append(rollout)
            continue
        raise ValueError(f"{path} holds rollout {rollout.id!r} of another {reason}: name another --out, or remove it")
    _refuse_repeated(kept, path)
    return kept


def _difference(old: Settings, new: Settings) -> str:
    names = [name for name in Settings.__slots__ if getattr(old, name) != getattr(new, name)]
    return ", ".join(f"{name} was {getattr(old, name)!r}, now {getattr(new, name)!r}" for name in names)


def decode_to_file(
    engine: Engine, requests: Sequence[Request], path: Path, on_rollout: Callable[[Rollout], None]
) -> None:
    """Decode ``requests``, appending each record to ``path`` as it ends and then telling ``on_rollout``."""
    for _, rollout in engine.run(requests):
        append_jsonl(path, [rollout.to_json()])
        on_rollout(rollout)

"""What made a file that a later run may go on with: pair, arbiter, judge and drafter, written beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cospec.cli.methods import arbiter_digest, pair_digest, pinned_drafter, pinned_rule
from cospec.jsonl import write_json_atomic

if TYPE_CHECKING:
    from cospec.pair import Pair


def claim(out: Path, pair: Pair, arbiter: Path | None, rule: str = "strict", drafter: str = "model") -> None:
    """Write ``OUT.made_by.json``; ValueError if the file is there and another pair or other trained parts made it.

    ``rule`` and ``drafter`` are specs, whose files count. A part that an earlier version did not record may be any.
    """
    now: dict[str, Any] = {
        "pair": pair_digest(pair),
        "arbiter": arbiter_digest(arbiter) if arbiter else None,
        "judge": pinned_rule(rule).digest,
        "drafter": pinned_drafter(drafter).digest,
    }
    record = out.with_name(f"{out.name}.made_by.json")
    if out.exists() and record.exists():
        before = json.loads(record.read_text(encoding="utf-8"))
        other = [name for name in now if before.get(name, now[name]) != now[name]]
        if other:
            raise ValueError(f"{out} was made with another {' and another '.join(other)}: name another --out")
    out.parent.mkdir(parents=True, exist_ok=True)
    write_json_atomic(record, now | {role: model.path for role, model in pair.spec.models.items()})

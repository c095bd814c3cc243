"""MT-Bench (Zheng et al. 2023): 80 open questions of two turns. Rows {"question_id", "category", "turns", "reference"}.

There is no gold answer: a judge model rates the answers (`cospec.tasks.mt_bench_judge`). Without one the questions
serve to measure speed and agreement. The Hub's copy calls the turns `prompt` and the id `prompt_id`.
"""

from __future__ import annotations

from dataclasses import replace

from cospec.prompt_rows import PromptRow
from cospec.tasks.base import Problem, RawRow, Task
from cospec.tasks.source import Part, Published


def read(row: RawRow) -> Problem:
    """The question is the first turn; `turns`, `category` and `reference` (answers a judge may be shown) go along."""
    turns = row.get("turns") or row.get("prompt")
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ValueError(f"{row.where}: neither 'turns' nor 'prompt' is a list of texts: not this task's format")
    name = row.own_id("question_id", "prompt_id") or row.index
    category, reference = row.optional_text("category") or None, row.optional_list("reference", str)
    extra = {"turns": turns, "category": category, "reference": reference}
    return Problem(f"mt_bench/{name}", turns[0], None, extra=extra)


def next_turn(row: PromptRow, answer: str) -> PromptRow | None:
    """The row with the answer to its last turn and the turn after it, None when no turn is left."""
    asked = row.messages or [{"role": "user", "content": row.prompt}]
    num_asked = sum(message["role"] == "user" for message in asked)
    turns = row.extra["turns"]
    if num_asked >= len(turns):
        return None
    more = [{"role": "assistant", "content": answer}, {"role": "user", "content": turns[num_asked]}]
    return replace(row, prompt=None, messages=[*asked, *more])


TASK = Task(
    name="mt_bench",
    licence="Apache-2.0",
    source=Published(
        repo="HuggingFaceH4/mt_bench_prompts",
        revision="e3a795c5e9a82ee40611c416b8a7786c73198991",
        parts={"test": (Part(("question", "test"), "train"),)},
    ),
    scorer=None,
    instruction="{question}",
    plain="{question}\n",
    read=read,
)

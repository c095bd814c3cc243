"""The prompts of `cospec bench`."""

from __future__ import annotations

from typing import Any

from cospec.cli.bench_options import DEFAULT_NUM, BenchOptions
from cospec.cli.eval_tasks import data_paths, problem_nums, split_of
from cospec.prompt_rows import PromptRow, load_prompt_rows


def load_prompts(options: BenchOptions) -> tuple[list[PromptRow], dict[str, Any]]:
    """The rows and what they are; ValueError before any model is loaded for what cannot be read."""
    from cospec.cli.methods import describe_rows

    if options.prompts is not None:
        rows = load_prompt_rows(options.prompts, require_gold=False)
        return rows, {"file": options.prompts.name, **describe_rows(rows)}
    rows, described = [], {}
    names = [split_of(text)[0] for text in options.tasks]
    paths = data_paths(options.data or [], names)
    nums = dict.fromkeys(names, DEFAULT_NUM) | problem_nums(options.num or [], names)
    for text in options.tasks:
        found, info = _from_task(text, paths, nums, options.raw)
        rows += found
        described[text] = info
    return rows, {"tasks": described, **describe_rows(rows)}


def _from_task(text: str, paths: Any, nums: Any, raw: bool) -> tuple[list[PromptRow], dict[str, Any]]:
    from cospec.task_set import load_task

    name, split = split_of(text)
    found = load_task(name, path=paths.get(name), split=split, num=nums.get(name), chat=not raw)
    return found.rows, found.info.to_json()

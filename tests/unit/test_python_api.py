"""The names that `cospec` exports, as the README uses them, and the likeliest mistakes with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import cospec
from cospec import Engine, Request, Sampling, drafter_named, rule_named
from cospec.pair import Pair

README = Path(__file__).parents[2] / "README.md"


def test_the_readmes_second_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    (block,) = [block for block in blocks if 'rule_named("strict")' in block]
    names: dict[str, Any] = {}
    exec(block, names)
    greedy, sampled = names["greedy"], names["sampled"]
    assert capsys.readouterr().out.endswith(greedy.text + greedy.finish_reason)
    assert (greedy.id, greedy.stop, greedy.settings.sampling) == ("greedy", "Answer", Sampling())
    assert (sampled.settings.seed, sampled.settings.max_new_tokens) == (1, 40)
    assert sampled.settings.stop == ("Answer", "coins")


def test_every_exported_name_is_there() -> None:
    assert all(getattr(cospec, name) for name in cospec.__all__)


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (Request("a", "text"), "'a' is a text: give its token ids"),
        (Request("a", [1], sampling={"temperature": 1.0}), "'a' has sampling .*: give a `Sampling`"),
    ],
)
def test_requests_of_other_types_are_refused(llama: Pair, request_: Request, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Engine(llama, rule_named("strict")).rollouts([request_])


def test_names_in_place_of_what_they_name_are_refused(llama: Pair) -> None:
    with pytest.raises(ValueError, match=r"give `rule_named\('strict'\)`"):
        Engine(llama, "strict")
    with pytest.raises(ValueError, match=r"give `drafter_named\('ngram'\)`"):
        Engine(llama, rule_named("strict"), drafter="ngram")
    assert (
        Engine(llama, rule_named("strict"), drafter=drafter_named("ngram")).settings.drafter
        == drafter_named("ngram").spec
    )
    with pytest.raises(ValueError, match="cost_ratio is 'auto': give a number"):
        Engine(llama, rule_named("strict"), cost_ratio="auto")


def test_two_requests_of_one_id_draw_alike(llama: Pair) -> None:
    engine = Engine(llama, rule_named("strict"), max_new_tokens=8, sampling=Sampling(temperature=1.0))
    first, second, other = engine.rollouts([Request("a", [5, 6]), Request("a", [5, 6]), Request("b", [5, 6])])
    assert first.output_ids == second.output_ids != other.output_ids

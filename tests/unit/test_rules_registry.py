"""Rules by name: specs, parameters and their ranges, errors, the methods of an evaluation, and docs/rules.md."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cospec.cli.methods import choose_methods
from cospec.engine.rules import RULES, Parameter, RuleInfo, rule_named, split_specs
from cospec.engine.rules.table import rules_table
from cospec.evaluation.method import Method

MADE = [info for info in RULES.values() if info.make]
NAMES = (
    "strict never always target cactus lenience mentored ensemble contrastive fuzzy r_fuzzy cascade_chow cascade_diff "
    "cascade_opt cascade_v1 cascade_v2 cascade_v3 tok_lt typical top_k trt_relaxed aasd fly judge arbiter"
)


def test_the_rules_that_follow_the_drafters_beliefs_say_so() -> None:
    trusting = {name for name, info in RULES.items() if info.trusts_draft}
    cascades = {name for name in RULES if name.startswith("cascade_")}
    assert trusting == cascades | {"fuzzy", "r_fuzzy", "ensemble", "contrastive"}
    assert trusting > {info.name for info in MADE if info.default.leans_on_draft}


def test_every_rule_is_there() -> None:
    assert {*NAMES.split()} <= {*RULES}
    assert all(name == info.name for name, info in RULES.items())


@pytest.mark.parametrize("info", MADE, ids=lambda info: info.name)
def test_a_rules_data_hang_together(info: RuleInfo) -> None:
    rule = info.default
    assert rule.name == info.name
    assert rule_named(rule.spec) == rule
    assert rule_named(info.name).spec == rule.spec
    # Canonical: every parameter, in order.
    shown = [part.partition("=")[0] for part in rule.spec.partition(":")[2].split(",") if part]
    assert shown == sorted(parameter.name for parameter in info.parameters)
    if info.strict_point:
        assert rule_named(info.strict_point).name == info.name
    assert all((info.summary, info.formula, info.greedy, info.drafters))
    for parameter in info.parameters:
        assert parameter.meaning
        assert parameter.source
        for value in (parameter.default, *parameter.grid):
            parameter.check(value)
        assert len(parameter.grid) in (0, 3)
    if info.parameters:
        assert info.parameters[0].grid, "the first parameter is the knob"


def inside(parameter: Parameter) -> st.SearchStrategy[object]:
    if parameter.kind == "choice":
        return st.sampled_from(parameter.choices)
    if parameter.kind == "int":
        return st.integers(int(parameter.low), 10**6)
    values = st.floats(parameter.low, parameter.high, allow_nan=False)
    open_ends = [parameter.low] * parameter.open_low + [parameter.high] * parameter.open_high
    return values.filter(lambda value: value not in open_ends)


@given(st.data())
def test_a_spec_comes_back_as_it_went(data: st.DataObject) -> None:
    info = data.draw(st.sampled_from([info for info in MADE if info.parameters]))
    values = {parameter.name: data.draw(inside(parameter)) for parameter in info.parameters}
    if info.name == "trt_relaxed":
        values |= {"begin": 3, "end": 4}
    rule = info.rule(values)  # type: ignore[arg-type]
    again = rule_named(rule.spec)
    assert again == rule
    assert again.spec == rule.spec


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("cactuss", "there is no rule 'cactuss': did you mean 'cactus'"),
        ("", "there is no rule ''"),
        ("cactus:dleta=1", "has no parameter 'dleta': did you mean 'delta'"),
        ("cactus:delta=-1", r"delta=-1 is out of range: it must be in \[0, 1000000\]"),
        ("cactus:delta=1e39", "out of range"),
        ("contrastive:beta=1e38", "out of range"),
        ("cactus:delta=inf", "out of range"),
        ("cactus:delta=nan", "out of range"),
        ("cactus:delta=x", "delta=x is not a number"),
        ("cactus:", "ends in a colon"),
        ("cactus:delta", "'delta' is no parameter: write cactus:param=value"),
        ("cactus:delta=1,delta=2", "delta is given twice"),
        ("cactus:delta=1,", "'' is no parameter"),
        ("top_k:k=1.5", "k=1.5 is not a whole number"),
        ("top_k:k=0", "k=0 is out of range"),
        ("lenience:alpha=1", r"it must be in \[0, 1\)"),
        ("fly:variant=papr", "must be in paper or code or vllm"),
        ("r_fuzzy:rows=both", "must be in raw or processed"),
        ("trt_relaxed:begin=3", "give both or none"),
        ("trt_relaxed:begin=5,end=5", "begin and end are both 5: a phase needs two token ids"),
        ("strict:k=1", "has no parameter 'k': it takes none"),
        ("judge", "needs a trained judge: write judge:DIR"),
        ("judge:", "needs a trained judge: write judge:DIR"),
        ("judge:threshold=1", "needs a trained judge: write judge:DIR"),
        ("judge:/nowhere", "there is no directory '/nowhere'"),
        ("judge:/nowhere,threshold=2", r"threshold=2 is out of range: it must be in \[-1, 1\]"),
        ("arbiter", "needs a trained arbiter: give its directory with --arbiter DIR"),
    ],
)
def test_a_spec_that_cannot_be_is_refused_with_what_was_meant(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rule_named(spec)


def test_commas_between_methods_and_between_parameters() -> None:
    text = "draft, cactus:delta=0.25,fly:window=4, theta=0.3,variant=code,strict"
    assert split_specs(text) == ["draft", "cactus:delta=0.25", "fly:window=4,theta=0.3,variant=code", "strict"]
    assert split_specs("a,,b") == ["a", "", "b"]


def test_two_values_of_a_parameter_are_two_methods_of_an_evaluation() -> None:
    chosen = choose_methods("draft,cactus:delta=0.25,cactus:delta=1,fly:window=2,theta=0.5", [], 0.5)
    assert list(chosen) == ["target", "draft", "cactus:delta=0.25", "cactus:delta=1", "fly:window=2,theta=0.5"]
    names = [Method(name, rule_named(name)).rule_name for name in list(chosen)[2:]]
    assert names == ["cactus:delta=0.25", "cactus:delta=1", "fly:theta=0.5,variant=paper,window=2"]
    with pytest.raises(ValueError, match=r"names cactus:delta=0\.75 twice"):
        choose_methods("cactus,cactus:delta=0.75", [], 0.5)
    with pytest.raises(ValueError, match="there is no method 'cactos'"):
        choose_methods("cactos", [], 0.5)


def test_the_documentation_holds_the_registry() -> None:
    text = (Path(__file__).parents[2] / "docs" / "rules.md").read_text(encoding="utf-8")
    assert text.endswith(rules_table()), "make it again: python -m cospec.engine.rules.table"

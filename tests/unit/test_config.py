"""Configs: what is read is what was meant, and everything doubtful is an error that names key, source and remedy."""

import re
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, Literal

import pytest

from cospec.config import load_config, to_yaml


class Shape(Enum):
    OWN = "own"
    SHARED = "shared"


@dataclass(frozen=True, slots=True)
class Optimiser:
    learning_rate: float = 1e-4
    steps: int = 10
    name: str | None = None

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"optimiser.steps is {self.steps}: use at least 1")


@dataclass(frozen=True)
class Run:
    data: str
    optimiser: Optimiser = field(default_factory=Optimiser)
    warm_up: Optimiser | None = None
    tags: list[str] = field(default_factory=list)
    ids: tuple[int, ...] = (1, 2)
    kwargs: dict[str, Any] = field(default_factory=dict)
    reading: Literal["decision", "rollout"] = "decision"
    shape: Shape = Shape.OWN


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def in_order(parts: list[str]) -> str:
    return "(?s)" + ".*".join(re.escape(part) for part in parts)


def test_file_then_overrides_later_wins(tmp_path: Path) -> None:
    file = write(
        tmp_path / "run.yaml",
        "data: a.jsonl\noptimiser: {steps: 3}\nwarm_up: {learning_rate: 1e-3}\nkwargs: {a: {b: null}}\n",
    )
    run = load_config(Run, file, ["optimiser.steps=5", "kwargs.c=[1, 2]", "tags=[x, y]", "reading=rollout"])
    assert run == Run(
        data="a.jsonl",
        optimiser=Optimiser(steps=5),
        warm_up=Optimiser(learning_rate=1e-3),
        tags=["x", "y"],
        kwargs={"a": {"b": None}, "c": [1, 2]},
        reading="rollout",
    )


def test_exponents_without_a_point_are_numbers(tmp_path: Path) -> None:
    file = write(tmp_path / "run.yaml", "data: x\noptimiser: {learning_rate: 1e-6}\n")
    assert load_config(Run, file, []).optimiser.learning_rate == 1e-6
    assert load_config(Run, None, ["data=x", "optimiser.learning_rate=1e-5"]).optimiser.learning_rate == 1e-5


@pytest.mark.parametrize("text", ["012", "1e5", "on", "null", "a=b", " x", "[1"])
def test_string_overrides_are_taken_as_they_stand(text: str) -> None:
    assert load_config(Run, None, [f"data={text}"]).data == text


def test_optional_string_takes_null() -> None:
    run = load_config(Run, None, ["data=x", "optimiser.name=null"])
    assert run.optimiser.name is None
    assert load_config(Run, None, ["data=x", "optimiser.name=007"]).optimiser.name == "007"


def test_to_yaml_reads_back_to_an_equal_config(tmp_path: Path) -> None:
    run = load_config(
        Run, None, ["data=äöü: #1", "warm_up.steps=2", "shape=SHARED", "ids=[3]", "kwargs.x={y: [1e-9, true]}"]
    )
    assert load_config(Run, write(tmp_path / "run.yaml", to_yaml(run)), []) == run


@pytest.mark.parametrize(
    "text", ["${", "${x}", "\\${x}", "\\\\${x} \\", "a\\b ${${x}}", "${oc.env:HOME}", "$${:'\"}\n"]
)
def test_to_yaml_reads_back_strings_that_look_like_interpolations(tmp_path: Path, text: str) -> None:
    run = Run(data=text, tags=[text], kwargs={"a": {"b": [text]}})
    assert load_config(Run, write(tmp_path / "run.yaml", to_yaml(run)), []) == run


@pytest.mark.parametrize(
    ("overrides", "parts"),
    [
        (["optimiser.lerning_rate=1"], ["'optimiser.lerning_rate'", "command line", "'optimiser.learning_rate'"]),
        (["learning_rate=1"], ["'learning_rate'", "did you mean 'optimiser.learning_rate'"]),
        (["optimiser.qqqq=1"], ["'optimiser.qqqq'", "optimiser.learning_rate, optimiser.steps, optimiser.name"]),
        (["tags.x=1"], ["unknown", "'tags.x'"]),
        (["optimiser={stepz: 1}"], ["'optimiser.stepz'", "'optimiser.steps'"]),
        (["optimiser.steps=1", "optimiser.steps=2"], ["'optimiser.steps'", "set twice"]),
        (["optimiser.steps=1", "optimiser={steps: 2}"], ["'optimiser.steps'", "'optimiser'", "the same thing"]),
        (["optimiser.steps=many"], ["'optimiser.steps'", "command line", "a whole number", "many"]),
        (["optimiser.steps=2.5"], ["'optimiser.steps'", "a whole number"]),
        (["optimiser.steps=null"], ["'optimiser.steps'", "a whole number"]),
        (["reading=both"], ["'reading'", "'decision', 'rollout'"]),
        (["shape=round"], ["'shape'", "OWN, SHARED"]),
        (["tags=5"], ["'tags'", "list[str]"]),
        (["optimiser=5"], ["'optimiser'", "learning_rate, steps, name"]),
        (["optimiser.steps=0"], ["optimiser.steps is 0", "at least 1"]),
        (["optimiser.steps"], ["'optimiser.steps'", "key=value"]),
        (["=1"], ["key=value"]),
        (["tags=[a"], ["'tags'", "not valid YAML"]),
    ],
)
def test_bad_overrides_are_named(overrides: list[str], parts: list[str]) -> None:
    with pytest.raises(ValueError, match=in_order(parts)):
        load_config(Run, None, ["data=x", *overrides])


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("data: x\noptimiser: {step: 1}\n", ["'optimiser.step'", "run.yaml", "'optimiser.steps'"]),
        ("data: x\noptimiser: {steps: lots}\n", ["'optimiser.steps'", "run.yaml", "a whole number"]),
        ("data: x\noptimiser:\n", ["'optimiser'", "a section with the keys"]),
        ("data: x\ndata: y\n", ["run.yaml", "data"]),
        ("data: 'x\n", ["run.yaml", "not valid YAML"]),
        ("- a\n", ["run.yaml", "list"]),
        ("tags: [a]\n", ["'data'", "no default", "run.yaml"]),
        ("data: ${nowhere}\n", ["'data'", "nowhere"]),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, parts: list[str]) -> None:
    with pytest.raises(ValueError, match=in_order(parts)):
        load_config(Run, write(tmp_path / "run.yaml", text), [])


def test_missing_file_and_directory(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"config file .*nowhere\.yaml does not exist: check the path"):
        load_config(Run, tmp_path / "nowhere.yaml", [])
    with pytest.raises(ValueError, match="is a directory"):
        load_config(Run, tmp_path, [])


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    assert load_config(Optimiser, write(tmp_path / "empty.yaml", ""), []) == Optimiser()

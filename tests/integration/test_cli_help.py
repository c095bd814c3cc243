"""The command line as a user meets it: real processes, exit codes, and a help page that loads nothing."""

import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from cospec.cli import doctor
from cospec.cli.main import VERBS, build_app
from cospec.cli.options import on_interrupt, require_pair_choice

ROOT = Path(__file__).parents[2]
HEAVY = {"torch", "transformers", "peft", "numpy", "trl", "accelerate", "datasets", "omegaconf", "matplotlib", "wandb"}


def cospec(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "cospec", *arguments], capture_output=True, text=True, cwd=ROOT)


def test_help_lists_every_verb() -> None:
    result = cospec("--help")
    assert result.returncode == 0, result.stderr
    assert all(re.search(rf"^ *{verb}\b", result.stdout, re.MULTILINE) for verb in VERBS), result.stdout


def test_help_of_every_verb_imports_nothing_heavy() -> None:
    script = f"""
import sys
from cospec.cli.main import build_app
for verb in ([], *([verb] for verb in {VERBS!r})):
    try:
        build_app()([*verb, "--help"])
    except SystemExit as stop:
        assert stop.code == 0, verb
heavy = sorted({HEAVY!r} & set(sys.modules))
sys.exit(f"imported: {{heavy}}" if heavy else 0)
"""
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr


def test_version() -> None:
    assert re.fullmatch(r"cospec \d+\.\d+\.\d+\n", cospec("--version").stdout)


@pytest.mark.parametrize("arguments", [["nonsense"], ["doctor", "--nonsense"], ["doctor", "extra"], []])
def test_wrong_use_exits_with_2(arguments: list[str]) -> None:
    result = cospec(*arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr


def raising(error: BaseException) -> Callable[..., None]:
    def command() -> None:
        """Fail."""
        with on_interrupt(lambda: "3 rows in out.jsonl"):
            raise error

    return command


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (ValueError("K is 0: use at least 1"), 2, "cospec: error: K is 0: use at least 1\n"),
        (
            FileNotFoundError(2, "No such file", "a.jsonl"),
            2,
            "cospec: error: [Errno 2] No such file: 'a.jsonl'; kept: 3 rows in out.jsonl\n",
        ),
        (OSError(28, "Full"), 2, "cospec: error: [Errno 28] Full; kept: 3 rows in out.jsonl\n"),
        (KeyboardInterrupt(), 130, "cospec: interrupted; kept: 3 rows in out.jsonl\n"),
    ],
)
def test_user_errors_are_one_line(monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, line: str) -> None:
    monkeypatch.delenv("COSPEC_TRACEBACK", raising=False)
    monkeypatch.setattr(doctor, "command", raising(error))
    result = CliRunner().invoke(build_app(), ["doctor"])
    assert (result.exit_code, result.stderr, result.stdout) == (code, line, "")


@pytest.mark.parametrize("error", [RuntimeError("ours"), KeyError("ours"), AssertionError("ours")])
def test_our_own_faults_keep_their_traceback(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    monkeypatch.setattr(doctor, "command", raising(error))
    assert CliRunner().invoke(build_app(), ["doctor"]).exception is error


def test_traceback_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    error = ValueError("theirs")
    monkeypatch.setenv("COSPEC_TRACEBACK", "1")
    monkeypatch.setattr(doctor, "command", raising(error))
    assert CliRunner().invoke(build_app(), ["doctor"]).exception is error


def test_the_pair_is_named_in_one_way() -> None:
    require_pair_choice(Path("pair.yaml"), None, None)
    require_pair_choice(None, "d", "t")
    for choice, message in (
        ((None, None, None), "no models given"),
        ((Path("pair.yaml"), "d", None), "keep one of the two ways"),
        ((None, "d", None), "--draft is given without --target"),
        ((None, None, "t"), "--target is given without --draft"),
    ):
        with pytest.raises(ValueError, match=message):
            require_pair_choice(*choice)


def test_doctor_json() -> None:
    result = cospec("doctor", "--json")
    report = json.loads(result.stdout)
    works = {capability["name"]: capability["works"] for capability in report["capabilities"]}
    assert result.returncode == (0 if works["decode"] else 1)
    assert {"decode", "train", "demo", "wandb log", "deepspeed"} == set(works)
    assert report["devices"]["cpu"]["cores"] >= 1
    assert any("sdpa" in note for note in report["notes"])


def test_doctor_says_what_is_missing_or_outside_the_range(monkeypatch: pytest.MonkeyPatch) -> None:
    versions = {**dict.fromkeys(doctor.CORE, "999"), "torch": "2.6.0+cu124", "safetensors": "0.5", "numpy": "2.1"}

    def version(name: str) -> str:
        if name not in versions:
            raise doctor.metadata.PackageNotFoundError(name)
        return versions[name]

    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setattr(doctor, "find_devices", lambda: {"cpu": {"cores": 1}, "flash_attn": False})
    result = CliRunner().invoke(build_app(), ["doctor"])
    assert result.exit_code == 1
    assert "decode: will not work: transformers 999 (needs >=5.16,<5.25), peft 999" in result.stdout
    assert "trl missing" in result.stdout
    assert "torch 2.6" not in result.stdout


def test_doctor_knows_the_ranges_of_the_package() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    stated = set(project["dependencies"])
    for extra in ("train", "demo", "wandb", "deepspeed"):
        stated |= set(project["optional-dependencies"][extra])
    ranges = {**doctor.CORE, **doctor.TRAIN, **doctor.DEMO, **doctor.WANDB, **doctor.DEEPSPEED}
    assert {name + spec for name, spec in ranges.items()} <= stated
    assert project["requires-python"] == doctor.PYTHON_RANGE


def test_every_verb_has_a_help_line() -> None:
    app = build_app()
    entries = [*app.registered_commands, *app.registered_groups]
    assert [entry.name for entry in entries] == list(VERBS)
    assert all(command.callback is not None and command.callback.__doc__ for command in app.registered_commands)
    assert isinstance(app, typer.Typer)

"""tests/gpu/run.sh on the CPU: its results as a whole, and the parts that only a GPU would show to be wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

GPU_DIRECTORY = Path(__file__).parents[1] / "gpu"
#: Packages that the script must do without, and everything behind a socket.
BARRED = "import socket, sys\nsys.modules.update(dict.fromkeys({names}))\nsocket.socket.connect = None\n"
NAMES = [
    "pytest",
    "hypothesis",
    "typer",
    "omegaconf",
    "datasets",
    "trl",
    "scipy",
    "sklearn",
    "matplotlib",
    "math_verify",
]
OURS = ["target", "strict", "arbiter shared", "arbiter own"]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The JSON of one small run, which has nothing but its own packages and writes nothing else."""
    barred, work = tmp_path_factory.mktemp("barred"), tmp_path_factory.mktemp("work")
    (barred / "sitecustomize.py").write_text(BARRED.format(names=NAMES))
    done = subprocess.run(
        ["bash", str(GPU_DIRECTORY / "run.sh"), "--small"],
        cwd=work,
        env=os.environ | {"PYTHON": sys.executable, "PYTHONPATH": str(barred)},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert [file.name for file in work.iterdir()] == ["gpu_results.json"]
    return json.loads((work / "gpu_results.json").read_text())


def test_every_part_ran_and_every_check_holds(found: dict[str, Any]) -> None:
    assert found["finished"]
    assert found["small"]
    assert found["failures"] == found["left_out"] == []
    assert {"equality", "speed", "profile of strict by 1"} <= found["parts"].keys()
    assert all(part["error"] is None for part in found["parts"].values())
    names = [check["name"] for check in found["checks"]]
    assert len(names) == len(set(names)) > 30
    assert {f"strict with K = {k} is target-only" for k in range(1, 9)} < set(names)
    for cache in ("shared", "own"):
        assert f"arbiter, {cache} cache: decisions alone are the batch's" in names
    assert all(check["holds"] for check in found["checks"])
    assert found["graphs"] or (found["graphs"] is None and "compile" in found["graphs_reason"])


def test_every_case_has_its_cells(found: dict[str, Any]) -> None:
    cells = found["cells"]
    cases = [(case, method) for case in found["size"]["cases"] for method in case["methods"]]
    assert [(cell["num_prompts"], cell["batch"], cell["new_tokens"], cell["method"]) for cell in cells] == [
        (case["num_prompts"], case["together"], case["num_new"], method) for case, method in cases
    ]
    assert {cell["method"] for cell in cells if cell["batch"] > 1} == {*OURS, "generate"}
    for cell, (case, _) in zip(cells, cases, strict=True):
        assert len(cell["tokens_per_s"]) == case["repeats"]
        assert min(cell["tokens_per_s"]) <= cell["median_tokens_per_s"] <= max(cell["tokens_per_s"])
        assert sum(cell["share"].values()) == pytest.approx(1.0)
        assert 0.0 < cell["share"]["rest"] < 1.0
        assert cell["share"].keys() - {"rest"} >= cell["passes"].keys()
        assert cell["bandwidth_share"] > 0.0
    assert any(name.startswith("strict by 1 / assisted by 1") for name in found["ratios"])
    assert any(name.startswith("strict by 3 / assisted by 1") for name in found["ratios"])


def test_the_made_pair_has_the_acceptance_it_was_made_for(found: dict[str, Any]) -> None:
    cells = {(c["method"], c["num_prompts"], c["batch"], c["new_tokens"]): c for c in found["cells"]}
    assert all(cell["identical_to_target"] for cell in cells.values() if "arbiter" not in cell["method"])
    strict, assisted = cells["strict", 3, 3, 12], cells["assisted", 3, 1, 12]
    assert strict["acceptance"] == pytest.approx(0.8, abs=0.15)
    assert strict["tokens_per_round"] == pytest.approx(assisted["tokens_per_round"], abs=0.3)
    assert strict["tokens_per_round"] > 2.0
    assert cells["target", 1, 1, 12]["passes"] == {"target": 13}
    assert cells["generate", 1, 1, 12]["passes"] == {"target": 12}
    arbiters = [cell for cell in cells.values() if "arbiter" in cell["method"]]
    assert all(cell["passes"]["arbiter"] > 0 for cell in arbiters)
    assert any(0.0 < cell["keep_rate"] < 1.0 for cell in arbiters)


def test_rounds_are_profiled_and_what_a_cpu_cannot_show_is_null(found: dict[str, Any]) -> None:
    assert [row["method"] for row in found["launches"]] == [*OURS, "generate", "assisted"]
    for row in found["launches"]:
        counts = row["per_round"]
        assert counts.pop("wall_ms") > 0.0
        assert counts.pop("profiled_wall_ms") > 0.0
        assert len(counts) == 7
        assert set(counts.values()) == {None}


# ---- the parts ------------------------------------------------------------------------------------------------------


@pytest.fixture
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The script's modules can be imported, and are forgotten afterwards."""
    monkeypatch.syspath_prepend(str(GPU_DIRECTORY))
    before = set(sys.modules)
    yield
    for name in {path.stem for path in GPU_DIRECTORY.glob("*.py")} & (set(sys.modules) - before):
        del sys.modules[name]


@pytest.mark.usefixtures("scripts")
def test_the_two_permutations_part_at_the_share_of_ids_and_nowhere_else() -> None:
    from made_pair import PARTED, successors

    target_next, draft_next = successors(1000)
    for successor in (target_next, draft_next):
        assert sorted(successor.tolist()) == list(range(1000))
        assert successor[-1] == 999
    assert int((target_next != draft_next).sum()) == round(PARTED * 999)
    # One cycle: no text comes back to where it was before it has been everywhere.
    place, seen = 0, set()
    while place not in seen:
        seen.add(place)
        place = int(target_next[place])
    assert len(seen) == 999


@pytest.mark.usefixtures("scripts")
def test_a_device_is_busy_while_any_kernel_runs() -> None:
    from launches import Span, device_counts

    spans = [
        Span("kernel_a", 0.0, 1000.0, True),
        Span("kernel_b", 500.0, 1500.0, True),
        Span("kernel_c", 600.0, 700.0, True),
        Span("Memcpy DtoH (Device -> Pageable)", 3000.0, 3500.0, True),
        Span("Memcpy HtoD (Pageable -> Device)", 4000.0, 4000.0, True),
        *[Span(name, 0.0, 9000.0, False) for name in ("cudaLaunchKernel", "cudaLaunchKernelExC", "cuLaunchKernelEx")],
        *[Span("cudaStreamSynchronize", start, start + 1.0, False) for start in (5.0, 9.0)],
        Span("cudaDeviceSynchronize", 0.0, 1.0, False),
    ]
    assert device_counts(spans, wall_s=0.01) == {
        "device_busy_ms": 2.0,
        "host_gap_ms": 8.0,
        "kernels": 3,
        "launches": 3,
        "stream_waits": 2,
        "copies_to_host": 1,
        "copies_to_device": 1,
    }
    assert set(device_counts(spans[5:], wall_s=0.01).values()) == {None}


@pytest.mark.usefixtures("scripts")
def test_a_broken_part_is_kept_and_fails_the_run_but_not_the_others(tmp_path: Path) -> None:
    from results import Results

    results = Results(tmp_path / "found.json", limit_s=60.0)
    with results.part("first"):
        raise RuntimeError("out of memory")
    with results.part("second"):
        results.check("these are the same", None)
        results.check("these are not", "token 3")
    with pytest.raises(KeyboardInterrupt), results.part("third"):
        raise KeyboardInterrupt
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failures"] == ["first", "these are not"]
    assert "out of memory" in found["parts"]["first"]["error"]
    assert found["parts"]["second"]["error"] is None
    assert [check["holds"] for check in found["checks"]] == [True, False]
    assert not found["finished"]


@pytest.mark.usefixtures("scripts")
def test_nothing_is_begun_when_the_time_is_up(tmp_path: Path) -> None:
    from made_pair import make_pair
    from methods import Transformers
    from results import Results
    from sizes import SMALL, Case
    from speed import Bench

    made = make_pair(64, SMALL.target, SMALL.draft, torch.device("cpu"))
    results = Results(tmp_path / "found.json", limit_s=10.0)
    bench = Bench(made, {"generate": Transformers(made.pair, None)}, 4, results, 1e9, reserve_s=20.0)
    bench.run(Case(1, 1, 8, ("generate",), repeats=2))
    assert bench.cells == []
    assert results.found["left_out"] == ["generate, 1 by 1, 8 new"]


@pytest.mark.usefixtures("scripts")
def test_texts_and_decisions_that_part_are_found() -> None:
    from equality import decisions_differ, ids_of, texts_differ, tiny_subject

    import cospec

    directory = Path(cospec.__file__).parent / "assets" / "tiny"
    subject = tiny_subject(directory, torch.device("cpu"), num_prompts=2, num_new=12)
    rollouts, others = subject.decode("never"), subject.decode("always")
    texts = ids_of(rollouts)
    assert texts_differ(subject, texts, texts) is None
    assert "token 3" in str(texts_differ(subject, [texts[0], [*texts[1][:3], 7, *texts[1][4:]]], texts))
    assert f"token {len(texts[0]) - 1}" in str(texts_differ(subject, [texts[0][:-1], texts[1]], texts))
    assert decisions_differ(rollouts, rollouts) is None
    assert "kept=True" in str(decisions_differ(others, rollouts))


@pytest.mark.usefixtures("scripts")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_without_a_device_the_full_run_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from gpu_check import main

    with pytest.raises(SystemExit):
        main([str(tmp_path / "found.json")])
    assert "--small" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("scripts")
@pytest.mark.parametrize(("role", "parameters"), [("target", 8.030e9), ("draft", 1.236e9)])
def test_the_full_shapes_are_those_they_are_named_for(role: str, parameters: float) -> None:
    from meter import weight_bytes
    from sizes import FULL
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(vocab_size=FULL.vocab_size, tie_word_embeddings=role == "draft", **getattr(FULL, role))
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    assert sum(weight.numel() for weight in model.parameters()) == pytest.approx(parameters, rel=1e-3)
    embedding = config.vocab_size * config.hidden_size
    layers = parameters - (embedding if role == "draft" else 2 * embedding)
    assert weight_bytes(model) == pytest.approx(2 * (layers + embedding), rel=1e-3)

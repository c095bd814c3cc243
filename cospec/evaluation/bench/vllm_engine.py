"""vLLM as a contender, in an interpreter of its own: its packages seldom fit those of this environment."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import torch

from cospec.evaluation.bench.cells import CellKey, Measured, cut_at_end
from cospec.evaluation.bench.workload import Workload, room_needed, tighter_context
from cospec.pair import ModelSpec, Pair, PairSpec

ENGINE, GENERATE, DRAFT_MODEL = "vllm", "generate", "draft_model"
_WORKER = Path(__file__).with_name("vllm_worker.py")
_IMPORT_TIMEOUT_S, _CLOSE_TIMEOUT_S = 300, 30
#: What is quoted of the worker's messages when it fails.
_NUM_QUOTED_LINES = 15


def vllm_version(python: Path) -> str:
    """The version of vLLM that this interpreter has; ValueError if it cannot be run or has none."""
    command = [str(python), "-c", "import sys, vllm; sys.stderr.write('\\nversion ' + vllm.__version__)"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_IMPORT_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ValueError(f"--vllm-python {python} cannot be run ({error}): give the path of a Python") from error
    last = done.stderr.strip().rpartition("\n")[2]
    if done.returncode != 0 or not last.startswith("version "):
        raise ValueError(
            f"--vllm-python {python} cannot import vllm ({last or f'exit code {done.returncode}'}): give the Python of "
            "an environment in which it is installed"
        )
    return last.removeprefix("version ")


def check_models(spec: PairSpec) -> None:
    """ValueError for a pair that vLLM cannot be given as it is."""
    for role, model in spec.models.items():
        if "gguf_file" in model.source()[1] or model.quantization:
            raise ValueError(
                f"--vllm-python needs models in their own format, and the {role} is a GGUF file or quantized on "
                "loading: convert it, or leave vLLM out"
            )


class VllmEnded(ValueError):
    """vLLM's process ended by itself; ``reason`` is the last of its messages."""

    def __init__(self, messages: Sequence[str]) -> None:
        super().__init__("vLLM has ended without an answer. It said:\n" + "\n".join(messages))
        self.reason = messages[-1] if messages else "it said nothing"


@dataclass(slots=True)
class VllmEngine:
    """A vLLM engine in a process of its own, started by `start` and ended by `close`; ``version`` is that of vLLM."""

    python: Path
    version: str
    options: Mapping[str, Any]
    environment: Mapping[str, str]
    _process: subprocess.Popen[str] | None = None
    _messages: IO[bytes] = field(default_factory=TemporaryFile)

    def start(self) -> None:
        """Load the models, if that is not done; `VllmEnded` if it cannot."""
        if self._process is not None:
            return
        self._process = subprocess.Popen(
            [str(self.python), str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._messages,
            text=True,
            env={**os.environ, **self.environment},
        )
        self.ask({"options": dict(self.options)})

    def ask(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """Send a line, wait for the answer."""
        process = self._process
        assert process is not None, "start() comes first"
        assert process.stdin is not None
        assert process.stdout is not None
        # A process that has ended is noticed by its missing answer.
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(question) + "\n")
            process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            raise VllmEnded(self._last_words())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        """End the process: its input ends, and if that is not enough, it is killed."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_CLOSE_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _last_words(self) -> list[str]:
        self._messages.seek(0)
        lines = self._messages.read().decode("utf-8", errors="replace").splitlines()
        return [line for line in lines if line.strip()][-_NUM_QUOTED_LINES:]


@dataclass(frozen=True, slots=True)
class VllmContender:
    """One batch size of a vLLM engine."""

    engine: VllmEngine
    work: Workload
    method: str
    batch: int

    @property
    def keys(self) -> tuple[CellKey, ...]:
        return (CellKey(ENGINE, self.method, self.batch),)

    def note(self, key: CellKey) -> str | None:
        return f"vllm {self.engine.version}, its memory with its preallocated cache"

    def warm_up(self) -> None:
        self.engine.start()
        self._run(self.work.warm_up(self.batch))

    def run(self) -> Measured:
        return self._run(self.work)

    def _run(self, work: Workload) -> Measured:
        question = {
            "prompts": work.prompts,
            "batch": self.batch,
            "max_new_tokens": work.max_new_tokens,
            "eos_token_ids": list(work.eos_token_ids),
        }
        answer = self.engine.ask(question)
        ids = [cut_at_end(row, work.eos_token_ids, work.max_new_tokens) for row in answer["output_ids"]]
        return Measured(answer["seconds"], tuple(ids), answer["num_rounds"], None, answer["peak_mb"])


def vllm_engines(
    python: Path, version: str, pair: Pair, work: Workload, batches: Sequence[int], extra: Mapping[str, Any]
) -> dict[str, VllmEngine]:
    """vLLM without and with the draft model, not yet started; ``extra`` goes to `vllm.LLM` as it is."""
    options = {**_options(pair, work, batches), **extra}
    speculation = {
        "method": "draft_model",
        "model": pair.spec.models["draft"].source()[0],
        "num_speculative_tokens": work.num_draft_tokens,
    }
    environment = _environment(pair)
    return {
        GENERATE: VllmEngine(python, version, options, environment),
        DRAFT_MODEL: VllmEngine(python, version, options | {"speculative_config": speculation}, environment),
    }


def able(contenders: Sequence[VllmContender]) -> tuple[list[VllmContender], list[str]]:
    """Those whose engine can run this pair at all, and why the others cannot; ValueError if none can."""
    found, left_out = [], {}
    for contender in contenders:
        engine = contender.engine
        if contender.method in left_out:
            continue
        try:
            contender.warm_up()
            found.append(contender)
        except VllmEnded as error:
            engine.close()
            left_out[contender.method] = f"vllm {contender.method} is left out, it ended with: {error.reason}"
            if len(left_out) == len({entry.method for entry in contenders}):
                raise
    return [entry for entry in found if entry.method not in left_out], list(left_out.values())


def _options(pair: Pair, work: Workload, batches: Sequence[int]) -> dict[str, Any]:
    longest = max(map(len, work.prompts)) + room_needed(work.num_draft_tokens, work.max_new_tokens, arbiters=True)
    return {
        **_model(pair.spec.target),
        "dtype": str(next(pair.target.parameters()).dtype).removeprefix("torch."),
        "max_model_len": min(longest, tighter_context(pair)[1]),
        "max_num_seqs": max(batches),
        "skip_tokenizer_init": True,
        # Repeats decode the same prompts: kept prefixes would be no longer read.
        "enable_prefix_caching": False,
        # As this package's engine and transformers run: without compilation.
        "enforce_eager": True,
    }


def _model(model: ModelSpec) -> dict[str, Any]:
    path, keywords = model.source()
    return {"model": path, **keywords}


def _environment(pair: Pair) -> dict[str, str]:
    """One process, and on a CPU as many threads as here, left where the system puts them."""
    found = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_LEVEL": "WARNING"}
    if pair.device.type == "cpu":
        threads = str(torch.get_num_threads())
        found |= {"OMP_NUM_THREADS": threads, "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        found |= {"VLLM_CPU_KVCACHE_SPACE": os.environ.get("VLLM_CPU_KVCACHE_SPACE", "1")}
    return found

"""Run by the interpreter that has vLLM, in an environment of its own: this file imports nothing of this package.

Reads one JSON object per line on stdin and answers each with one on stdout: first the options of the engine, answered
with its version once it stands, then runs, answered with ids, seconds, rounds and the peak of memory. Everything that
vLLM itself prints goes to stderr. It ends with its input.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import IO, Any

# Left alone, modules beside this file would go before installed ones.
sys.path[:] = [entry for entry in sys.path if entry != str(Path(__file__).parent)]


def main() -> None:
    """Serve until the input ends."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    options = json.loads(sys.stdin.readline())["options"]
    import vllm

    engine = vllm.LLM(**options).llm_engine
    _answer(answers, {"version": vllm.__version__})
    for line in sys.stdin:
        _answer(answers, run(engine, json.loads(line)))


def run(engine: Any, job: dict[str, Any]) -> dict[str, Any]:
    """Decode ``prompts`` greedily, ``batch`` in flight at once; a place that falls free is taken by the next prompt.

    A round is a step of the engine in which a text grows; that in which its prompt is read writes its first token.
    """
    params = _sampling(job)
    _reset_peak()
    waiting = list(enumerate(job["prompts"]))[::-1]
    outputs: list[list[int]] = [[] for _ in waiting]
    in_flight, num_rounds = 0, 0
    began = time.perf_counter()
    while waiting or in_flight:
        while waiting and in_flight < job["batch"]:
            index, prompt = waiting.pop()
            engine.add_request(str(index), {"prompt_token_ids": prompt}, params)
            in_flight += 1
        for output in engine.step():
            index, ids = int(output.request_id), list(output.outputs[0].token_ids)
            num_rounds += len(ids) > len(outputs[index])
            outputs[index] = ids
            in_flight -= output.finished
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "output_ids": outputs, "num_rounds": num_rounds, "peak_mb": _peak_mb()}


def _sampling(job: dict[str, Any]) -> Any:
    from vllm import SamplingParams

    # Exactly the ends of the bench, whatever the model's own config says.
    ends = {"ignore_eos": True, "stop_token_ids": job["eos_token_ids"]}
    return SamplingParams(temperature=0.0, max_tokens=job["max_new_tokens"], detokenize=False, **ends)


def _answer(answers: IO[str], value: dict[str, Any]) -> None:
    print(json.dumps(value), file=answers, flush=True)


def _reset_peak() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_mb() -> float | None:
    """The high-water mark of this process in 10^6 bytes, on Linux."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmHWM:")), None)


if __name__ == "__main__":
    main()

"""Measure the tiny pair with plain greedy decoding: what each solves and what decisions could.

Usage, from the root of the repository:
    python -m data.tiny_pair.measure [--assets cospec/assets/tiny] [--num-problems 1000] [--seed 9001] [--json FILE]

Both models read the same committed text token by token; at a mismatch a policy picks whose token is committed. That is
collaborative decoding with an arbitrated bonus, position by position, so it also gives each policy's tokens per round.
The seed is a development seed of the `eval` split: benchmarks must use another one.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache, PreTrainedModel, PreTrainedTokenizerBase

from cospec.tasks.word_problems import BANDS, Problem, apply, cell_of, generate, score
from data.tiny_pair.mixes import EXPERTISE
from data.tiny_pair.tokenizer import prompt_text

MAX_NEW_TOKENS = 128
BLOCK = 5
_OPERATIONS = {"+": "add", "-": "sub", "*": "mul", "/": "div"}
_EQUATION = re.compile(r"(?:([0-9]+)([-+*/])([0-9]+)|([0-9]+)% of ([0-9]+))=([0-9]+)")
_OPEN_EQUATION = re.compile(r"(?:([0-9]+)([-+*/])([0-9]+)|([0-9]+)% of ([0-9]+))=[0-9]*$")

Policy = Callable[[str, str, str], bool]
"""(text so far, draft's token, target's token) -> whether to keep the draft's token; asked at mismatches only."""


@dataclass(frozen=True, slots=True)
class Trace:
    """One decoded problem: its text, the length with EOS, and where the models disagreed and the draft was dropped."""

    text: str
    num_tokens: int
    mismatches: tuple[bool, ...]
    rejected: tuple[bool, ...]


class Pair:
    """Draft and target with their tokenizer."""

    def __init__(self, assets: Path) -> None:
        self.tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(assets / "target")
        self.draft, self.target = (
            AutoModelForCausalLM.from_pretrained(assets / role).eval() for role in ("draft", "target")
        )

    def decode(self, problems: Sequence[Problem], policy: Policy, batch_size: int = 250) -> list[Trace]:
        """Decode every problem under `policy`."""
        traces: list[Trace] = []
        for start in range(0, len(problems), batch_size):
            traces += self._decode_batch(problems[start : start + batch_size], policy)
        return traces

    @torch.no_grad()
    def _decode_batch(self, problems: Sequence[Problem], policy: Policy) -> list[Trace]:
        prompts = [prompt_text(self.tokenizer, problem.prompt) for problem in problems]
        inputs = self.tokenizer(
            prompts, add_special_tokens=False, padding=True, padding_side="left", return_tensors="pt"
        )
        readers = [_Reader(model, inputs["attention_mask"]) for model in (self.draft, self.target)]
        ids = inputs["input_ids"]
        written: list[list[int]] = [[] for _ in problems]
        flags: list[list[tuple[bool, bool]]] = [[] for _ in problems]
        eos = self.tokenizer.eos_token_id
        for _ in range(MAX_NEW_TOKENS):
            choices = torch.stack([reader.read(ids) for reader in readers], 1).tolist()  # (B, 2)
            for row, (draft_id, target_id) in enumerate(choices):
                if not written[row] or written[row][-1] != eos:
                    keep = draft_id != target_id and self._ask(policy, written[row], draft_id, target_id)
                    flags[row].append((draft_id != target_id, draft_id != target_id and not keep))
                    written[row].append(draft_id if keep else target_id)
            if all(row[-1] == eos for row in written):
                break
            ids = torch.tensor([row[-1:] for row in written])
        return [self._trace(*row) for row in zip(written, flags, strict=True)]

    def _ask(self, policy: Policy, written: list[int], draft_id: int, target_id: int) -> bool:
        tokens = (self.tokenizer.decode([token]) for token in (draft_id, target_id))
        return policy(self.tokenizer.decode(written), *tokens)

    def _trace(self, written: list[int], flags: list[tuple[bool, bool]]) -> Trace:
        text = self.tokenizer.decode(written, skip_special_tokens=True)
        mismatches, rejected = zip(*flags, strict=True)
        return Trace(text, len(written), mismatches, rejected)


class _Reader:
    """One model with its cache; reads tokens and returns its greedy choice."""

    def __init__(self, model: PreTrainedModel, mask: torch.Tensor) -> None:
        self._model, self._mask, self._cache = model, mask, DynamicCache(config=model.config)

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        """Feed ids (B, S) and return the next token of each row (B,)."""
        missing = self._cache.get_seq_length() + ids.shape[1] - self._mask.shape[1]
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(ids), missing)], 1)
        positions = (self._mask.cumsum(1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        output = self._model(
            input_ids=ids,
            attention_mask=self._mask,
            position_ids=positions,
            past_key_values=self._cache,
            logits_to_keep=1,
        )
        return output.logits[:, -1].argmax(-1)


def keep_never(text: str, draft_token: str, target_token: str) -> bool:
    """The target alone."""
    return False


def keep_always(text: str, draft_token: str, target_token: str) -> bool:
    """The draft alone."""
    return True


def keep_words(text: str, draft_token: str, target_token: str) -> bool:
    """Keep the draft's phrasing; fall back wherever a digit is at stake."""
    return not (draft_token.isdigit() or target_token.isdigit())


def keep_by_cell(text: str, draft_token: str, target_token: str) -> bool:
    """Keep phrasing; in a result, fall back exactly in the cells that were taught to the target alone."""
    equation = _OPEN_EQUATION.search(text)
    if not equation:
        return keep_words(text, draft_token, target_token)
    _, sign, operand, percent, _ = equation.groups()
    cell = cell_of(_OPERATIONS[sign], int(operand)) if sign else cell_of("pct", int(percent))
    return cell is not None and cell not in EXPERTISE["target"]


def num_rounds(stops: Sequence[bool], most: int, bonus: bool) -> int:
    """Rounds that a decoded text takes: each ends at a rejected position or after `most`, plus one with a bonus."""
    rounds, position = 0, 0
    while position < len(stops):
        window = stops[position : position + most]
        position += window.index(True) + 1 if True in window else len(window) + bonus
        rounds += 1
    return rounds


def measure(pair: Pair, problems: Sequence[Problem]) -> dict[str, float]:
    """All numbers of the model card, as shares of the problems unless the name says otherwise."""
    policies = {"target": keep_never, "draft": keep_always, "keep_words": keep_words, "keep_by_cell": keep_by_cell}
    traces = {name: pair.decode(problems, policy) for name, policy in policies.items()}
    right = {
        name: [score(trace.text, p.gold) for trace, p in zip(found, problems, strict=True)]
        for name, found in traces.items()
    }
    numbers = {f"accuracy_{name}": _share(verdicts) for name, verdicts in right.items()}
    either = [d or t for d, t in zip(right["draft"], right["target"], strict=True)]
    neither = [row for row, solved in enumerate(either) if not solved]
    mixed = [row for row, problem in enumerate(problems) if is_mixed(problem)]
    numbers |= {
        "accuracy_union": _share(either),
        "neither": len(neither) / len(problems),
        "neither_that_is_mixed": _share([row in set(mixed) for row in neither]),
        "mixed": len(mixed) / len(problems),
        "keep_by_cell_on_neither": _share([right["keep_by_cell"][row] for row in neither]),
        "keep_by_cell_on_mixed": _share([right["keep_by_cell"][row] for row in mixed]),
        "target_on_mixed": _share([right["target"][row] for row in mixed]),
        "draft_on_mixed": _share([right["draft"][row] for row in mixed]),
        "solution_tokens": sum(t.num_tokens for t in traces["target"]) / len(problems),
        "mismatches_per_solution": sum(sum(t.mismatches) for t in traces["target"]) / len(problems),
        "tokens_per_round_strict": _tokens_per_round(traces["target"], BLOCK, bonus=True),
        "tokens_per_round_always": _tokens_per_round(traces["draft"], BLOCK + 1, bonus=False),
        "tokens_per_round_keep_by_cell": _tokens_per_round(traces["keep_by_cell"], BLOCK + 1, bonus=False),
    }
    for role in EXPERTISE:
        numbers |= {f"{role}_{cell}": value for cell, value in cell_accuracy(traces[role]).items()}
    numbers["ceiling_over_strict"] = numbers["tokens_per_round_always"] / numbers["tokens_per_round_strict"]
    return numbers


def is_mixed(problem: Problem) -> bool:
    """Whether a problem has steps of both models' strengths."""
    return all(any(cell in EXPERTISE[role] for cell in problem.kinds) for role in EXPERTISE)


def cell_accuracy(traces: Sequence[Trace]) -> dict[str, float]:
    """Per cell, the share of right results among the equations that were written, asked for or not."""
    total, right = Counter[str](), Counter[str]()
    for trace in traces:
        for first, sign, second, percent, whole, result in _EQUATION.findall(trace.text):
            operation = _OPERATIONS[sign] if sign else "pct"
            value, operand = (int(first), int(second)) if sign else (int(whole), int(percent))
            cell = cell_of(operation, operand)
            if cell:
                total[cell] += 1
                right[cell] += apply(operation, value, operand) == int(result)
    return {cell: right[cell] / total[cell] for cell in BANDS if total[cell]}


def _share(verdicts: Sequence[bool]) -> float:
    return sum(verdicts) / max(1, len(verdicts))


def _tokens_per_round(traces: Sequence[Trace], most: int, bonus: bool) -> float:
    """Of all rounds together: `most` draft tokens per round, and the target's own after a full block with `bonus`."""
    rounds = sum(num_rounds(trace.rejected, most, bonus) for trace in traces)
    return sum(trace.num_tokens for trace in traces) / rounds


def main() -> None:
    """Print the numbers as a table and, if asked, write them as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--assets", type=Path, default=Path("cospec/assets/tiny"))
    parser.add_argument("--num-problems", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=9001)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)  # more threads only slow down models this small
    numbers = measure(Pair(args.assets), generate(args.num_problems, args.seed))
    for name, value in numbers.items():
        print(f"{name:32} {value:.3f}")
    if args.json:
        args.json.write_text(json.dumps(numbers, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""A draft/target pair under a rule as a model of the lm-evaluation-harness.

Generation runs through the engine, stop strings and all. Log-likelihoods are the target's own, which lossless
speculative decoding leaves as they are; a rule that keeps tokens of the draft defines no distribution over texts, so
there they are refused.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from tqdm import tqdm

from cospec.arbiter.adapter import arbiter_rule, read_pins
from cospec.engine.decode import Engine
from cospec.engine.metrics import Acceptance, acceptance
from cospec.engine.record import Bonus, Sampling
from cospec.engine.request import Request
from cospec.engine.rules import Rule, rule_named
from cospec.evaluation.lm_eval.likelihood import Continuation, log_likelihoods
from cospec.evaluation.lm_eval.options import check_whole, decoding, device_of, pair_spec, row_ids, rule_name
from cospec.pair import load_pair
from cospec.pair_file import override
from cospec.prompts import chat_text, one_bos, templated_ids

# Under the name of the harness, whose settings decide what is shown.
_LOG = logging.getLogger("lm_eval.cospec")
#: Rules whose texts are distributed as those of one model.
_ONE_MODEL = ("target", "strict", "never", "draft")


@register_model("cospec")
class CospecLM(TemplateLM):
    """``--model_args``: ``pair`` (a file or `tiny`) or ``draft`` and ``target``; ``arbiter`` (a directory) or ``rule``.

    Rules are draft (the model alone) and those of docs/rules.md, by one parameter at most, as commas end an argument
    here; ``threshold``, ``bonus``, ``num_draft_tokens``,
    ``max_gen_toks`` (where a task sets none), ``seed``, ``dtype``, ``attn`` as in `cospec eval`. ``--batch_size`` rows
    are decoded together. ValueError for what cannot work, before weights are read where that is possible.
    """

    def __init__(
        self,
        pair: str | None = None,
        draft: str | None = None,
        target: str | None = None,
        arbiter: str | None = None,
        rule: str | None = None,
        threshold: float = 0.5,
        bonus: Bonus | None = None,
        num_draft_tokens: int = 5,
        max_gen_toks: int = 256,
        seed: int = 0,
        device: str | None = None,
        dtype: str | None = None,
        attn: str | None = None,
        batch_size: int | str = 1,
        max_batch_size: int | None = None,
        **unknown: Any,
    ) -> None:
        super().__init__()
        if unknown:
            raise ValueError(f"unknown model_args {', '.join(sorted(unknown))}: see the options of CospecLM")
        if max_batch_size is not None or not str(batch_size).isdigit():
            raise ValueError(f"batch_size is {batch_size!r}: the engine needs a number, such as --batch_size 32")
        check_whole(num_draft_tokens=num_draft_tokens, max_gen_toks=max_gen_toks, seed=seed)
        name = rule_name(rule, arbiter, threshold, bonus)
        if arbiter:
            read_pins(Path(arbiter))
        loaded = load_pair(override(pair_spec(pair, draft, target), device_of(device), dtype, attn))
        self.pair = loaded.draft_alone() if name == "draft" else loaded
        self.rule: Rule = (
            arbiter_rule(arbiter, loaded, threshold) if arbiter else rule_named("target" if name == "draft" else name)
        )
        self.rule_name, self.bonus, self.batch_size = name, bonus, int(batch_size)
        self.num_draft_tokens, self.max_gen_toks, self.seed = num_draft_tokens, max_gen_toks, seed
        self.tokenizer = self.pair.tokenizer
        self._device = self.pair.device
        self._is_templated = False
        self._sums, self._num_shortened = Acceptance(), 0
        # What the engine would refuse is refused now.
        self._engine(Sampling(), self.pair.eos_token_ids)

    # --- what the harness asks of any model --------------------------------------------------------------------------

    @property
    def eot_token_id(self) -> int:
        ids = (*self.pair.eos_token_ids, self.tokenizer.eos_token_id)
        if ids[0] is None:
            raise ValueError("the pair has no end-of-text token, which the harness needs for empty contexts")
        return int(ids[0])

    @property
    def prefix_token_id(self) -> int:
        """What stands before a text without a context."""
        bos = self.tokenizer.bos_token_id
        return self.eot_token_id if bos is None else int(bos)

    @property
    def max_length(self) -> int:
        return self.pair.target_context

    @property
    def tokenizer_name(self) -> str:
        return self.pair.spec.target.path.replace("/", "__")

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """Ids with exactly one BOS where the tokenizer has one; none is added to the text of a chat template."""
        if add_special_tokens is False:
            return list(self.tokenizer.encode(string, add_special_tokens=False))
        if self._is_templated:
            return templated_ids(self.pair, string)
        return one_bos(self.tokenizer.encode(string), self.tokenizer.bos_token_id)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The pair's template; it has one or none, so a name is refused."""
        if isinstance(chat_template, str):
            raise ValueError(f"chat template {chat_template!r}: the pair has one template, use --apply_chat_template")
        self._is_templated = bool(chat_template)
        return self.tokenizer.chat_template if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The messages as text, as `cospec eval` writes them."""
        if not self.tokenizer.chat_template:
            raise ValueError("the pair's tokenizer has no chat template: leave out --apply_chat_template")
        self._is_templated = True
        return chat_text(self.pair, chat_history, open_answer=add_generation_prompt)

    def get_model_info(self) -> dict[str, Any]:
        """What the harness writes beside its results: how texts were decoded, and what it cost."""
        sums = self._sums
        return {
            "cospec": {
                **{role: model.path for role, model in self.pair.spec.models.items()},
                "rule": self.rule_name,
                "num_draft_tokens": self.num_draft_tokens,
                "bonus": self.bonus or self.rule.default_bonus,
                "num_texts": sums.num_rollouts,
                "num_tokens": sums.num_tokens,
                "num_rounds": sums.num_rounds,
                "tokens_per_round": sums.tokens_per_round,
                "keep_rate": sums.keep_rate,
                "num_shortened_prompts": self._num_shortened,
            }
        }

    # --- generation --------------------------------------------------------------------------------------------------

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Texts up to their stop string, EOS or cap, in the order of the requests."""
        groups: dict[tuple[Sampling, tuple[int, ...]], list[int]] = defaultdict(list)
        prompts = []
        for place, (request, row_id) in enumerate(zip(requests, row_ids(requests), strict=True)):
            context, options = request.args
            wanted = decoding(options, self.max_gen_toks)
            groups[wanted.sampling, self._ends(wanted.stops)].append(place)
            ids = self._fitted(self.tok_encode(context), wanted.max_gen_toks)
            prompts.append(Request(row_id, ids, wanted.max_gen_toks, stop=self._shown(wanted.stops)))
        texts: dict[int, str] = {}
        with tqdm(total=len(requests), disable=disable_tqdm, desc="Running generate_until requests") as bar:
            for (sampling, eos_ids), places in groups.items():
                engine = self._engine(sampling, eos_ids, max(prompts[place].max_new_tokens or 1 for place in places))
                for index, rollout in engine.run([prompts[place] for place in places]):
                    place = places[index]
                    self._sums += acceptance([rollout])
                    texts[place] = rollout.text
                    self.cache_hook.add_partial("generate_until", requests[place].args, texts[place])
                    bar.update(1)
        self._report()
        return [texts[place] for place in range(len(requests))]

    def _engine(self, sampling: Sampling, eos_ids: Sequence[int], max_new_tokens: int = 1) -> Engine:
        return Engine(
            self.pair,
            self.rule,
            num_draft_tokens=self.num_draft_tokens,
            bonus=self.bonus,
            max_new_tokens=max_new_tokens,
            sampling=sampling,
            eos_token_ids=eos_ids,
            batch_size=self.batch_size,
            seed=self.seed,
        )

    def _ends(self, stops: Sequence[str]) -> tuple[int, ...]:
        """The ids that end a text: the pair's, and stop strings that are special tokens, which no text shows."""
        special = sorted(set(stops) & set(self.tokenizer.all_special_tokens))
        return tuple(dict.fromkeys((*self.pair.eos_token_ids, *self.tokenizer.convert_tokens_to_ids(special))))

    def _shown(self, stops: Sequence[str]) -> tuple[str, ...]:
        """The stop strings that a text can show; an empty one says nothing."""
        return tuple(stop for stop in stops if stop and stop not in self.tokenizer.all_special_tokens)

    def _fitted(self, ids: list[int], room: int) -> list[int]:
        """A prompt that leaves room for the answer: the end of it, behind its BOS, where it is too long."""
        most = self.max_length - room
        if most < 2:
            raise ValueError(
                f"max_gen_toks is {room} and the context holds {self.max_length}: nothing is left for the prompt"
            )
        if len(ids) <= most:
            return ids
        self._num_shortened += 1
        first = ids[:1] if ids[0] == self.tokenizer.bos_token_id else []
        return [*first, *ids[len(ids) - most + len(first) :]]

    def _report(self) -> None:
        sums = self._sums
        _LOG.info(
            "cospec: %d texts, %d tokens in %d rounds; %d prompts shortened",
            sums.num_rollouts,
            sums.num_tokens,
            sums.num_rounds,
            self._num_shortened,
        )

    # --- log-likelihoods ---------------------------------------------------------------------------------------------

    def _loglikelihood_tokens(
        self, requests: list[tuple[Any, list[int], list[int]]], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Of each (texts, context ids, continuation ids): the target's log-probability, and whether it is greedy."""
        self._refuse_without_distribution()
        wanted = [self._continuation(context, ids) for _, context, ids in requests]
        with tqdm(total=len(requests), disable=disable_tqdm, desc="Running loglikelihood requests") as bar:
            found = log_likelihoods(self.pair.target, self.pair.vocab_size, wanted, self.batch_size, bar.update)
        for (texts, _, _), answer in zip(requests, found, strict=True):
            # Windows of a rolling request have no texts of their own.
            if texts is not None:
                self.cache_hook.add_partial("loglikelihood", texts, answer)
        return found

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The target's log-probability of whole texts, in windows that predict every token once."""
        self._refuse_without_distribution()
        windows, owners = [], []
        for place, request in enumerate(requests):
            ids = self.tok_encode(request.args[0], add_special_tokens=False)
            pairs = get_rolling_token_windows(ids, self.prefix_token_id, self.max_length, context_len=1)
            for context, continuation in map(make_disjoint_window, pairs):
                windows.append((None, context, continuation))
                owners.append(place)
        sums = [0.0] * len(requests)
        for place, (logp, _) in zip(owners, self._loglikelihood_tokens(windows, disable_tqdm), strict=True):
            sums[place] += logp
        for place, request in enumerate(requests):
            self.cache_hook.add_partial("loglikelihood_rolling", request.args, sums[place])
        return sums

    def _continuation(self, context: Sequence[int], ids: Sequence[int]) -> Continuation:
        if len(ids) > self.max_length:
            raise ValueError(f"a continuation of {len(ids)} tokens is longer than the context of {self.max_length}")
        # One more than fits: the last token is predicted, not read.
        room = self.max_length + 1 - len(ids)
        self._num_shortened += len(context) > room
        return Continuation(tuple(context[-room:]), tuple(ids))

    def _refuse_without_distribution(self) -> None:
        if self.rule_name not in _ONE_MODEL:
            raise ValueError(
                f"this task needs log-likelihoods, and under rule {self.rule_name!r} a pair has none: a decision, not "
                "one distribution, says which token comes next. Choose a generative task, or rule=strict, whose "
                "log-likelihoods are the target's"
            )

"""The judge: a trained linear head on the target's hidden states decides mismatches (Bachmann et al. 2025)."""

from __future__ import annotations

import torch

from cospec.engine.heads.judge import JudgeHead, check_judge, load_judge
from cospec.engine.parameters import Parameter, show
from cospec.engine.record import Bonus
from cospec.engine.rules.base import RoundView, Rule, Verdict
from cospec.engine.rules.spec import RuleInfo
from cospec.pair import Pair


class JudgeRule(Rule):
    """Keep a mismatch iff the head's probability at the token that the target has read exceeds ``threshold``.

    The head is loaded once for each pair the rule is used with.
    """

    name = "judge"
    default_bonus: Bonus = "target"

    def __init__(self, path: str, threshold: float) -> None:
        self.path, self.threshold = path, threshold
        self._layer, _ = check_judge(path)
        self._loaded: tuple[Pair, JudgeHead] | None = None

    @property
    def spec(self) -> str:
        return f"{self.name}:{self.path},threshold={show(self.threshold)}"

    @property
    def layers(self) -> tuple[int, ...]:
        return (self._layer,)

    def load(self, pair: Pair) -> None:
        """ValueError for a head that was trained on another target, or is damaged."""
        if self._loaded is None or self._loaded[0].target is not pair.target:
            self._loaded = pair, load_judge(self.path, pair).to(pair.device)

    def check_bonus(self, bonus: Bonus) -> None:
        super().check_bonus(bonus)
        if bonus == "arbitrated":
            raise ValueError(
                "rule 'judge' judges tokens that the target has read, and with bonus 'arbitrated' it never reads a "
                "block's last one: choose bonus 'target'"
            )

    def decide(self, view: RoundView) -> Verdict:
        assert self._loaded is not None, "an engine loads its rule first"
        assert view.hidden is not None, "the rule names its layer"
        # The first state is that of the last committed token, so that the next is of the first draft *behind* it.
        states = view.hidden.of(self.layers)[:, 1 : 1 + view.match.shape[1]].to(view.match.device)
        probs = torch.where(view.mismatch, torch.sigmoid(self._loaded[1](states)), 0.0)
        return Verdict(accept=view.match | (view.mismatch & (probs > self.threshold)), keep_probs=probs)


INFOS = (
    RuleInfo(
        name="judge",
        summary="A trained head on the target's hidden state of the drafted token decides a mismatch (`judge:DIR`).",
        formula="accept a match; keep a mismatch iff sigmoid(w.h + b) > threshold, h being the state that has read x",
        source="Judge Decoding, Bachmann et al., ICLR 2025 (2501.19309)",
        greedy="the same: the head reads hidden states, not rows",
        drafters="any; it learned from mismatches of one",
        make=None,
        open=JudgeRule,
        parameters=(
            Parameter(
                "threshold",
                0.5,
                "the probability that a kept mismatch exceeds; below 0 all stay",
                "the arbiter's",
                low=-1.0,
                high=1.0,
                grid=(0.9, 0.5, 0.1),
            ),
        ),
        strict_point="judge:DIR,threshold=1",
        relaxed_point="threshold < 0",
    ),
)

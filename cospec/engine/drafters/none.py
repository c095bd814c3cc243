"""No drafter at all: for rules that draft nothing."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from cospec.engine.cached_model import PromptPart
from cospec.engine.contexts import Contexts
from cospec.engine.drafters.base import Draft, Outcome
from cospec.engine.sampling import Draws


class NoDrafter:
    """Leaves every token to the target; bound to every run alike, as it keeps nothing."""

    context = 0

    def admit(self, ids: Tensor, lengths: Mapping[int, int], chunk: int) -> None:
        pass

    def read(self, ids: Tensor, part: PromptPart) -> None:
        pass

    def propose(self, contexts: Contexts, num_steps: int, draws: Draws) -> Draft:
        return Draft(contexts.ids[:, :0], torch.zeros_like(contexts.limits), None)

    def commit(self, outcome: Outcome) -> None:
        pass

    def select_rows(self, rows: Tensor) -> None:
        pass

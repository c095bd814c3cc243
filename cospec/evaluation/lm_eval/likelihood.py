"""Log-likelihoods of continuations under one causal model, in padded batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Continuation:
    """Tokens to be scored behind a context; both have at least one token."""

    context: tuple[int, ...]
    ids: tuple[int, ...]


@torch.no_grad()
def log_likelihoods(
    model: PreTrainedModel,
    vocab_size: int,
    wanted: Sequence[Continuation],
    batch_size: int,
    done: Callable[[int], None] = lambda count: None,
) -> list[tuple[float, bool]]:
    """(sum of log-probabilities, whether greedy decoding would write the same) of each continuation, in order.

    Ids from ``vocab_size`` on are padding of the output layer and have no probability. ``done`` is told how many more
    are scored.
    """
    # Long ones first: rows of a batch are of one length or nearly so, and memory runs out at once or not at all.
    order = sorted(range(len(wanted)), key=lambda place: -len(wanted[place].context) - len(wanted[place].ids))
    found: dict[int, tuple[float, bool]] = {}
    for first in range(0, len(order), batch_size):
        places = order[first : first + batch_size]
        found |= zip(places, _score(model, vocab_size, [wanted[place] for place in places]), strict=True)
        done(len(places))
    return [found[place] for place in range(len(wanted))]


def _score(model: PreTrainedModel, vocab_size: int, batch: Sequence[Continuation]) -> list[tuple[float, bool]]:
    # The last token is only predicted, never read.
    inputs = [[*one.context, *one.ids][:-1] for one in batch]
    lengths = torch.tensor([len(ids) for ids in inputs])
    device = next(model.parameters()).device
    padded = torch.zeros(len(batch), int(lengths.max()), dtype=torch.long)
    for row, ids in zip(padded, inputs, strict=True):
        row[: len(ids)] = torch.tensor(ids)
    # Padding stands behind the text, where a causal model does not look.
    mask = torch.arange(padded.shape[1]) < lengths[:, None]
    logits = model(input_ids=padded.to(device), attention_mask=mask.long().to(device)).logits
    return [
        _sum(logits[row, length - len(one.ids) : length, :vocab_size], one.ids)
        for row, (one, length) in enumerate(zip(batch, lengths.tolist(), strict=True))
    ]


def _sum(logits: Tensor, ids: tuple[int, ...]) -> tuple[float, bool]:
    wanted = torch.tensor(ids, device=logits.device)
    logps = torch.log_softmax(logits.float(), dim=-1)
    chosen = logps.gather(-1, wanted[:, None]).squeeze(-1)
    return float(chosen.sum()), bool((logits.argmax(dim=-1) == wanted).all())

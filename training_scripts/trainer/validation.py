"""Held-out loss."""

# ruff: noqa: N806 - suffixes of tensors name their dimensions
from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from trainer.data import Batch
from trainer.head import IGNORED_TARGET
from trainer.parallel import World


@torch.no_grad()
def held_out_loss(
    model: nn.Module,
    batches: Iterable[Batch],
    world: World,
    *,
    goes_on: Callable[[], bool] = lambda: True,
) -> float | None:
    """Mean cross-entropy in nats per target that counts, over all ranks' batches; None without any.

    Held-out conversations that are cut may hold nothing that the assistant says.

    ``goes_on``: asked before every batch, on all ranks alike; False breaks off, without a loss.
    """
    totals = torch.zeros(2, dtype=torch.float64, device=world.device)
    for batch in batches:
        if not goes_on():
            return None
        tokens_BS = batch.tokens_BS.to(world.device)
        targets_BS = batch.targets_BS.to(world.device)
        totals[0] += model(tokens_BS, targets_BS).double()
        totals[1] += (targets_BS != IGNORED_TARGET).sum()
    loss, count = world.total(totals).tolist()
    return float(loss / count) if count else None

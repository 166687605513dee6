"""How many targets a step's loss is the mean of, where some tokens do not count in the loss."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from trainer.data import Batch
from trainer.head import IGNORED_TARGET
from trainer.parallel import World


def counted_targets(batches: Sequence[Batch], world: World, *, copies: int) -> int:
    """Targets of a step that count, over all ranks; at least 1, so that it can divide.

    Ranks that share a sequence hold different targets of it. Tensor-parallel ranks read the same
    ones: ``copies`` of each. The batches lie on the host, so that no GPU has to be waited for.
    """
    here = sum(int((batch.targets_BS != IGNORED_TARGET).sum()) for batch in batches)
    everywhere = int(world.total(torch.tensor(here, dtype=torch.int64)))
    return max(1, everywhere // copies)

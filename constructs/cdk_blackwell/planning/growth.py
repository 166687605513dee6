"""Where the micro-batch starts and how far it may grow."""

from __future__ import annotations

from dataclasses import replace

from cdk_blackwell.planning.efficiency import Efficiency
from cdk_blackwell.planning.predictions import Candidate, predict, predict_memory
from cdk_blackwell.planning.wish import Wish


def start_safely(
    wish: Wish, candidate: Candidate, efficiency: Efficiency | None = None
) -> Candidate:
    """The same candidate with the tier's first micro-batch, and the way back up as growth steps.

    ``candidate`` has the largest micro-batch that fits. A tier that raises the batch gradually
    starts with the largest size predicted to need its ``start_fraction`` of the budget, or with the
    smallest there is. Every step divides a rank's sequences, so the global batch never changes, and
    the loss keeps the number of pieces that the largest size needs.
    """
    recipe, budget = candidate.recipe, candidate.memory.budget_gib
    ceiling = recipe.micro_batch_size
    sizes = [size for size in wish.sizes(candidate.layout) if size <= ceiling]

    def is_safe(size: int) -> bool:
        memory = predict_memory(
            wish.model, candidate.layout, replace(recipe, micro_batch_size=size)
        )
        return memory.reserved_gib <= wish.tier.start_fraction * budget

    if wish.tier.start_fraction == 1 or len(sizes) == 1:
        return candidate
    start = max((size for size in sizes if is_safe(size)), default=sizes[0])
    growth = tuple(size for size in sizes if size > start)
    smaller = replace(recipe, micro_batch_size=start, batch_growth=growth)
    return predict(wish.model, candidate.layout, smaller, efficiency)

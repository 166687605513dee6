"""Which source of a mixture comes at which position, computed point by point.

Positions are cut into blocks of ``BLOCK``. In every block each source has a fixed number of places,
its quota, in an order of the block's own. So shares are exact in every block, only the block
in use is held, and any rank count and any resume read the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.shuffle import permute

BLOCK: Final = 4096
"""Sequences; shares are exact to one part in as many."""
_BLOCK_KEYS: Final = 1 << 19
"""Added to block numbers in keys, so that blocks are not shuffled as epochs are."""


def quotas(weights: Sequence[float]) -> NDArray[np.int64]:
    """Places in a block per source: shares by largest remainder, in all ``BLOCK``.

    ValueError when a weight is too small for one place.
    """
    exact = np.asarray(weights, dtype=np.float64) / sum(weights) * BLOCK
    counts = np.floor(exact).astype(np.int64)
    largest_first = np.argsort(counts - exact, kind="stable")
    counts[largest_first[: BLOCK - int(counts.sum())]] += 1
    if not counts.all():
        number = int(np.argmin(counts))
        raise ValueError(
            f"the weight {weights[number]} is less than 1/{BLOCK} of all weights; leave that "
            "source out or give it more"
        )
    return counts


def place(
    positions: NDArray[np.int64], counts: NDArray[np.int64], *, seed: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each position's source, and its position in that source's own endless stream."""
    blocks, offsets = np.divmod(positions, BLOCK)
    sources, places = np.empty_like(positions), np.empty_like(positions)
    for block in np.unique(blocks):
        here = blocks == block
        order, earlier = _block(tuple(counts.tolist()), seed, int(block))
        sources[here] = order[offsets[here]]
        places[here] = block * counts[sources[here]] + earlier[offsets[here]]
    return sources, places


@lru_cache(maxsize=4)
def _block(
    counts: tuple[int, ...], seed: int, block: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each offset's source, and how many offsets before it in the block have the same one."""
    key = ((seed << 20) + _BLOCK_KEYS + block) % 2**64
    slots = permute(np.arange(BLOCK, dtype=np.int64), BLOCK, key=key)
    order = np.repeat(np.arange(len(counts)), counts)[slots].astype(np.int64)
    earlier = np.empty_like(order)
    for source, count in enumerate(counts):
        earlier[order == source] = np.arange(count)
    return order, earlier

"""Context parallelism: several ranks share one sequence.

Of ``context_parallel`` ranks, ``ulysses`` exchange heads for tokens before attention and back after
it (all-to-all); the remaining factor, ``gather``, collects keys and values of all its ranks.

A causal mask gives late tokens more work than early ones. So each sequence is cut into twice as
many chunks as there are gathering ranks, and rank g gets chunks g and 2*gather-1-g: every rank has
the same work. Ulysses ranks share their two chunks evenly, in order.

Memory of one attention on a rank, in units of its own tokens' bytes (query q, key k = value):
kept for the backward pass are 2q + 2k and the softmax's denominators, as without context
parallelism. While it runs, gathered keys and values take 2k*gather twice over (as received, in
order), and 2k*gather more for their gradients. Nothing grows with the square of the length.

Checked on CPU against one process; the CUDA kernels take the same steps and were never tried.
Suffixes name dimensions: B batch, H heads, S sequence, D head.
"""

# ruff: noqa: N803 - suffixes of tensors name their dimensions
from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.attention import HEADS, TOKENS, causal_attention
from trainer.exchange import exchange
from trainer.gathered_attention import gathered_attention
from trainer.parallel import remember_group


@dataclass(frozen=True, kw_only=True)
class ContextGroup:
    """This rank's place among the ranks that share its sequences."""

    ulysses: int
    ulysses_rank: int
    ulysses_group: dist.ProcessGroup | None
    """None when ``ulysses`` is 1; so too for ``gather``."""
    gather: int
    gather_rank: int
    gather_group: dist.ProcessGroup | None

    @property
    def size(self) -> int:
        """Ranks that share one sequence."""
        return self.ulysses * self.gather

    def positions(self, sequence_length: int) -> Tensor:
        """Positions of this rank's tokens in the whole sequence, in their order here."""
        return positions(
            sequence_length,
            gather=self.gather,
            gather_rank=self.gather_rank,
            ulysses=self.ulysses,
            ulysses_rank=self.ulysses_rank,
        )

    def __post_init__(self) -> None:
        """Make the groups known to operators."""
        for group in (self.ulysses_group, self.gather_group):
            if group is not None:
                remember_group(group)

    def attend(self, q_BHSD: Tensor, k_BHSD: Tensor, v_BHSD: Tensor) -> Tensor:
        """Causal attention over the whole sequence for this rank's tokens."""
        if self.ulysses_group is None:
            return self._attend_gathered(q_BHSD, k_BHSD, v_BHSD)
        # One exchange for all three: heads are regrouped so that each rank's share is contiguous.
        shares = [x.unflatten(HEADS, (self.ulysses, -1)) for x in (q_BHSD, k_BHSD, v_BHSD)]  # type: ignore[no-untyped-call]
        counts = [share.shape[2] for share in shares]
        packed = torch.cat(shares, dim=2).flatten(1, 2)
        packed = exchange(packed, self.ulysses_group, split=HEADS, join=TOKENS)
        mixed = self._attend_gathered(*packed.split(counts, dim=HEADS))  # type: ignore[no-untyped-call]
        return exchange(mixed, self.ulysses_group, split=TOKENS, join=HEADS)

    def _attend_gathered(self, q_BHSD: Tensor, k_BHSD: Tensor, v_BHSD: Tensor) -> Tensor:
        if self.gather_group is None:
            return causal_attention(q_BHSD, k_BHSD, v_BHSD)
        return gathered_attention(q_BHSD, k_BHSD, v_BHSD, self.gather_group)


def positions(
    sequence_length: int, *, gather: int, gather_rank: int, ulysses: int, ulysses_rank: int
) -> Tensor:
    """``sequence_length / (gather * ulysses)`` positions of one rank's tokens."""
    # The device is named because models are built under torch.device("meta").
    everything = torch.arange(sequence_length, device="cpu")
    if gather == 1:
        return everything.chunk(ulysses)[ulysses_rank]
    chunks = everything.chunk(2 * gather)
    both = torch.cat((chunks[gather_rank], chunks[2 * gather - 1 - gather_rank]))
    return both.chunk(ulysses)[ulysses_rank]

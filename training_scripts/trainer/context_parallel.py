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

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.attention import (
    PartialAttention,
    attend_to,
    attend_to_backward,
    causal_attention,
    merge,
)

HEADS, TOKENS = 1, 2


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

    # The compiler does not see through collectives in autograd functions: blocks break here.
    @torch.compiler.disable  # type: ignore[untyped-decorator]
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
        out: Tensor = GatheredAttention.apply(q_BHSD, k_BHSD, v_BHSD, self)  # type: ignore[no-untyped-call]
        return out


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


def exchange(x: Tensor, group: dist.ProcessGroup, *, split: int, join: int) -> Tensor:
    """Give every rank its share of dimension ``split``, and join what is received along ``join``.

    Differentiable: gradients travel back the same way.
    """
    out: Tensor = _Exchange.apply(x, group, split, join)  # type: ignore[no-untyped-call]
    return out


class _Exchange(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, x: Tensor, group: dist.ProcessGroup, split: int, join: int) -> Tensor:
        context.settings = (group, split, join)
        return _all_to_all(x, group, split, join)

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        group, split, join = context.settings
        return _all_to_all(gradient, group, join, split), None, None, None


def _all_to_all(x: Tensor, group: dist.ProcessGroup, split: int, join: int) -> Tensor:
    sent = torch.stack(x.chunk(group.size(), dim=split))
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent, group=group)
    return torch.cat(received.unbind(), dim=join)


class GatheredAttention(torch.autograd.Function):
    """Attention of two chunks of queries to the keys and values gathered from all ranks.

    Own keys and values alone are kept; the backward pass gathers them again.
    """

    @staticmethod
    def forward(context: Any, q: Tensor, k: Tensor, v: Tensor, group: ContextGroup) -> Tensor:
        keys, values = _gather_in_order(k, v, group)
        merged = []
        for q_chunk, spans in _chunks(q, group):
            parts = [
                attend_to(q_chunk, keys[:, :, span], values[:, :, span], causal=causal)
                for span, causal in spans
            ]
            merged.append(merge(*parts) if len(parts) == 2 else parts[0])
        mixed = torch.cat([part.mixed_BHSD for part in merged], dim=TOKENS)
        log_sum_exp = torch.cat([part.log_sum_exp_BHS for part in merged], dim=TOKENS)
        context.save_for_backward(q, k, v, mixed, log_sum_exp)
        context.group = group
        return mixed

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, mixed, log_sum_exp = context.saved_tensors
        group: ContextGroup = context.group
        keys, values = _gather_in_order(k, v, group)
        key_gradients, value_gradients = torch.zeros_like(keys), torch.zeros_like(values)
        q_gradient = torch.zeros_like(q)
        pieces = (x.chunk(2, dim=TOKENS) for x in (q_gradient, gradient, mixed, log_sum_exp))
        for (q_chunk, spans), q_sum, incoming, out, denominators in zip(
            _chunks(q, group), *pieces, strict=True
        ):
            merged = PartialAttention(
                mixed_BHSD=out.contiguous(), log_sum_exp_BHS=denominators.contiguous()
            )
            for span, causal in spans:
                of_q, of_k, of_v = attend_to_backward(
                    *(incoming.contiguous(), q_chunk, keys[:, :, span], values[:, :, span], merged),
                    causal=causal,
                )
                q_sum += of_q
                key_gradients[:, :, span] += of_k
                value_gradients[:, :, span] += of_v
        return q_gradient, *_reduce_to_own(key_gradients, value_gradients, group), None


def _chunks(q: Tensor, group: ContextGroup) -> Iterator[tuple[Tensor, list[tuple[slice, bool]]]]:
    """Each chunk of queries with the spans of keys it attends to, and which of them is causal."""
    early, late = q.chunk(2, dim=TOKENS)
    length = early.shape[TOKENS]
    first, last = group.gather_rank, 2 * group.gather - 1 - group.gather_rank
    for chunk, number in ((early, first), (late, last)):
        start = number * length
        own = (slice(start, start + length), True)
        yield chunk, [(slice(0, start), False), own] if start else [own]


def _gather_in_order(k: Tensor, v: Tensor, group: ContextGroup) -> tuple[Tensor, Tensor]:
    """Keys and values of the whole sequence, in the order of their positions."""
    own = torch.stack((k, v))
    everyone = own.new_empty(group.gather * 2, *own.shape[1:])
    dist.all_gather_single(everyone, own, group=group.gather_group)
    early, late = everyone.view(group.gather, *own.shape).chunk(2, dim=-2)
    keys, values = torch.cat((*early.unbind(), *reversed(late.unbind())), dim=-2).unbind()
    return keys, values


def _reduce_to_own(
    key_gradients: Tensor, value_gradients: Tensor, group: ContextGroup
) -> tuple[Tensor, Tensor]:
    """Sum over ranks of the gradients of this rank's own keys and values."""
    chunks = torch.stack((key_gradients, value_gradients)).chunk(2 * group.gather, dim=-2)
    everyone = torch.cat(
        [torch.cat((chunks[g], chunks[-1 - g]), dim=-2) for g in range(group.gather)]
    )
    own = torch.empty_like(everyone[:2])
    dist.reduce_scatter_single(own, everyone, group=group.gather_group)
    of_keys, of_values = own.unbind()
    return of_keys, of_values

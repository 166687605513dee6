"""Attention of a rank's queries to the keys and values gathered from all ranks of a group.

Own keys and values alone are kept; the backward pass gathers them again. In two forms of the same
steps: plain, which a memory tracker sees into, and as operators, which torch.compile takes into a
block's graph as they are. Suffixes name dimensions: B batch, H heads, S sequence, D head.
"""

# ruff: noqa: N803 - suffixes of tensors name their dimensions
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from trainer.attention import TOKENS, PartialAttention, attend_to, attend_to_backward, merge
from trainer.parallel import group_named


def gathered_attention(
    q_BHSD: Tensor, k_BHSD: Tensor, v_BHSD: Tensor, group: dist.ProcessGroup
) -> Tensor:
    """Causal attention over the sequence that the ranks of ``group`` hold, two chunks each."""
    mixed: Tensor
    if torch.compiler.is_compiling():
        mixed, _ = gathered_attention_operator(q_BHSD, k_BHSD, v_BHSD, group.group_name)
    else:
        mixed = _GatheredAttention.apply(q_BHSD, k_BHSD, v_BHSD, group)  # type: ignore[no-untyped-call]
    return mixed


class _GatheredAttention(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup) -> Tensor:
        mixed, log_sum_exp = _forward(q, k, v, group)
        context.save_for_backward(q, k, v, mixed, log_sum_exp)
        context.group = group
        return mixed

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        q, k, v, mixed, log_sum_exp = context.saved_tensors
        of_q, own = _backward(gradient, q, k, v, mixed, log_sum_exp, context.group)
        of_k, of_v = own.unbind()
        return of_q, of_k, of_v, None


@torch.library.custom_op("cdk_blackwell::gathered_attention", mutates_args=())
def gathered_attention_operator(
    q: Tensor, k: Tensor, v: Tensor, group: str
) -> tuple[Tensor, Tensor]:
    """Mixed values of the queries and the logarithms of their softmaxes' denominators."""
    return _forward(q, k, v, group_named(group))


@torch.library.custom_op("cdk_blackwell::gathered_attention_backward", mutates_args=())
def gathered_attention_backward_operator(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixed: Tensor,
    log_sum_exp: Tensor,
    group: str,
) -> tuple[Tensor, Tensor]:
    """Gradients of the queries, and of own keys and values, stacked."""
    return _backward(gradient, q, k, v, mixed, log_sum_exp, group_named(group))


@gathered_attention_operator.register_fake
def _(q: Tensor, k: Tensor, v: Tensor, group: str) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)


@gathered_attention_backward_operator.register_fake
def _(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixed: Tensor,
    log_sum_exp: Tensor,
    group: str,
) -> tuple[Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(2, *k.shape)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.group = inputs
    ctx.save_for_backward(*tensors, *output)


def _gathered_attention_back(
    context: Any, gradient: Tensor, _: Tensor
) -> tuple[Tensor, Tensor, Tensor, None]:
    of_q, own = gathered_attention_backward_operator(
        gradient, *context.saved_tensors, context.group
    )
    of_k, of_v = own.unbind()
    return of_q, of_k, of_v, None


gathered_attention_operator.register_autograd(_gathered_attention_back, setup_context=_keep)


def _forward(q: Tensor, k: Tensor, v: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    keys, values = _gather_in_order(k, v, group)
    merged = []
    for q_chunk, spans in _chunks(q, group):
        parts = [
            attend_to(q_chunk, keys[:, :, span], values[:, :, span], causal=causal)
            for span, causal in spans
        ]
        merged.append(merge(*parts) if len(parts) == 2 else parts[0])
    mixed = torch.cat([part.mixed_BHSD for part in merged], dim=TOKENS)
    return mixed, torch.cat([part.log_sum_exp_BHS for part in merged], dim=TOKENS)


def _backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mixed: Tensor,
    log_sum_exp: Tensor,
    group: dist.ProcessGroup,
) -> tuple[Tensor, Tensor]:
    keys, values = _gather_in_order(k, v, group)
    key_gradients, value_gradients = torch.zeros_like(keys), torch.zeros_like(values)
    q_gradient = torch.zeros_like(q, memory_format=torch.contiguous_format)
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
    return q_gradient, _reduce_to_own(key_gradients, value_gradients, group)


def _chunks(
    q: Tensor, group: dist.ProcessGroup
) -> Iterator[tuple[Tensor, list[tuple[slice, bool]]]]:
    """Each chunk of queries with the spans of keys it attends to, and which of them is causal."""
    early, late = q.chunk(2, dim=TOKENS)
    length = early.shape[TOKENS]
    first, last = group.rank(), 2 * group.size() - 1 - group.rank()
    for chunk, number in ((early, first), (late, last)):
        start = number * length
        own = (slice(start, start + length), True)
        yield chunk, [(slice(0, start), False), own] if start else [own]


def _gather_in_order(k: Tensor, v: Tensor, group: dist.ProcessGroup) -> tuple[Tensor, Tensor]:
    """Keys and values of the whole sequence, in the order of their positions."""
    own = torch.stack((k, v))
    everyone = own.new_empty(group.size() * 2, *own.shape[1:])
    dist.all_gather_single(everyone, own, group=group)
    early, late = everyone.view(group.size(), *own.shape).chunk(2, dim=-2)
    keys, values = torch.cat((*early.unbind(), *reversed(late.unbind())), dim=-2).unbind()
    return keys, values


def _reduce_to_own(
    key_gradients: Tensor, value_gradients: Tensor, group: dist.ProcessGroup
) -> Tensor:
    """Sums over ranks of the gradients of this rank's own keys and values, these two stacked."""
    chunks = torch.stack((key_gradients, value_gradients)).chunk(2 * group.size(), dim=-2)
    everyone = torch.cat(
        [torch.cat((chunks[g], chunks[-1 - g]), dim=-2) for g in range(group.size())]
    )
    own = torch.empty_like(everyone[:2])
    dist.reduce_scatter_single(own, everyone, group=group)
    return own

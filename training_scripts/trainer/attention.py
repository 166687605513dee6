"""Causal attention of whole sequences, and the partial results that context parallelism merges.

Suffixes name dimensions: B batch, H heads, S sequence, D head. There may be fewer heads of keys and
values than of queries; consecutive query heads then share one.
"""

# ruff: noqa: N803, N806, N812, N815 - suffixes of tensors name their dimensions
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values to mixed values, each B, H, S, D."""

HEADS, TOKENS = 1, 2
"""Dimensions of what attention takes and gives."""

_aten = torch.ops.aten


def causal_attention(q_BHSD: Tensor, k_BHSD: Tensor, v_BHSD: Tensor) -> Tensor:
    """Every token attends to itself and to those before it.

    In 16 bits by a flash or cuDNN kernel. Of the CUDA kernels that make no matrix of all scores one
    takes fp32, the memory-efficient one, and only with as many heads of keys as of queries; torch
    would fall back to that matrix without a word. So fp32 heads are repeated first.
    """
    grouped = q_BHSD.shape[HEADS] != k_BHSD.shape[HEADS]
    if grouped and q_BHSD.dtype is torch.float32:
        times = q_BHSD.shape[HEADS] // k_BHSD.shape[HEADS]
        k_BHSD, v_BHSD = (x.repeat_interleave(times, dim=HEADS) for x in (k_BHSD, v_BHSD))
        grouped = False
    return F.scaled_dot_product_attention(
        q_BHSD, k_BHSD, v_BHSD, is_causal=True, enable_gqa=grouped
    )


@dataclass(frozen=True, kw_only=True)
class PartialAttention:
    """Attention to some of the keys, ready to be merged with attention to others."""

    mixed_BHSD: Tensor
    log_sum_exp_BHS: Tensor
    """Logarithm of the softmax's denominator over the keys attended to, fp32."""


def attend_to(q_BHSD: Tensor, k_BHSD: Tensor, v_BHSD: Tensor, *, causal: bool) -> PartialAttention:
    """Flash attention to these keys only. ``causal``: as many keys as queries, same positions.

    On GPUs in 16 bits only: planning offers fp32 no layout that needs this, nor does ``run`` begin
    one (``check_layout``).
    """
    if q_BHSD.is_cuda:
        mixed, log_sum_exp, *_ = _aten._scaled_dot_product_flash_attention(
            q_BHSD, k_BHSD, v_BHSD, 0.0, causal
        )
    else:
        mixed, log_sum_exp = _aten._scaled_dot_product_flash_attention_for_cpu(
            q_BHSD, k_BHSD, v_BHSD, 0.0, causal
        )
    return PartialAttention(mixed_BHSD=mixed, log_sum_exp_BHS=log_sum_exp)


def merge(one: PartialAttention, other: PartialAttention) -> PartialAttention:
    """Attention to the keys of both, by the weight of each one's denominator."""
    log_sum_exp = torch.logaddexp(one.log_sum_exp_BHS, other.log_sum_exp_BHS)
    mixed = sum(
        part.mixed_BHSD.float() * (part.log_sum_exp_BHS - log_sum_exp).exp().unsqueeze(-1)
        for part in (one, other)
    )
    assert isinstance(mixed, Tensor)
    return PartialAttention(mixed_BHSD=mixed.to(one.mixed_BHSD.dtype), log_sum_exp_BHS=log_sum_exp)


def attend_to_backward(
    gradient_BHSD: Tensor,
    q_BHSD: Tensor,
    k_BHSD: Tensor,
    v_BHSD: Tensor,
    merged: PartialAttention,
    *,
    causal: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of queries, keys and values through attention to these keys.

    With the merged result and denominator the kernel makes again the probabilities as they are in
    the whole softmax, so each part's gradients are exact and add up.
    """
    mixed, log_sum_exp = merged.mixed_BHSD, merged.log_sum_exp_BHS
    if q_BHSD.is_cuda:
        # No sequence boundaries and no dropout: the kernel reads neither of the empty tensors.
        empty = torch.empty(0, dtype=torch.int64, device=q_BHSD.device)
        gradients = _aten._scaled_dot_product_flash_attention_backward(
            *(gradient_BHSD, q_BHSD, k_BHSD, v_BHSD, mixed, log_sum_exp, None, None),
            *(q_BHSD.shape[2], k_BHSD.shape[2], 0.0, causal, empty, empty),
        )
    else:
        gradients = _aten._scaled_dot_product_flash_attention_for_cpu_backward(
            *(gradient_BHSD, q_BHSD, k_BHSD, v_BHSD, mixed, log_sum_exp, 0.0, causal)
        )
    q_gradient, k_gradient, v_gradient = gradients
    return q_gradient, k_gradient, v_gradient

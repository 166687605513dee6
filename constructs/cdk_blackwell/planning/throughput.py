"""FLOPs per token and predicted speed. Efficiency is an assumption with a source, not a promise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.model_shape import ModelShape

FlopsConvention = Literal["causal", "palm"]

FSDP2_BF16_MFU: Final = 0.19
"""Share of dense BF16 peak that FSDP2 reached on 8 x B200 with Llama 3 8B at 8K tokens.

Published by torchao: 8,308 tokens/s/GPU at micro-batch 1 with selective recomputation; tuned
stacks reach more (67-70 % for Megatron). Replace it by a trial run's number.
"""

SMALLEST_BUSY_MODEL: Final = 500_000_000
"""Parameters; this project's guess of where launch overhead begins to count."""


def flops_per_token(
    model: ModelShape, sequence_length: int, convention: FlopsConvention = "causal"
) -> float:
    """Forward and backward FLOPs per token, recomputation not counted.

    ``causal`` counts half of the attention matrix (NVIDIA's convention), ``palm`` all of it.
    The input embedding is a look-up and costs none.
    """
    matrices = model.parameter_count - model.embedding_parameter_count
    if model.tie_word_embeddings:
        matrices += model.embedding_parameter_count
    attention = 6 * model.num_hidden_layers * model.query_size * sequence_length
    return 6 * matrices + (attention if convention == "causal" else 2 * attention)


@dataclass(frozen=True, kw_only=True)
class ThroughputEstimate:
    """Predicted speed."""

    flops_per_token: float
    flops_convention: FlopsConvention
    tokens_per_second_per_gpu: float
    mfu: float
    """Assumed model FLOPs over dense peak, 0 to 1."""
    bound: Literal["compute", "interconnect", "memory"]
    assumptions: tuple[str, ...]


def estimate_throughput(
    model: ModelShape, *, sequence_length: int, precision: str
) -> ThroughputEstimate:
    """Speed at the published efficiency of plain FSDP2 on one node, where compute bounds it."""
    flops = flops_per_token(model, sequence_length)
    peak = P6_B200.peak_flops[precision]
    small = (
        (
            f"{model.parameter_count / 1e6:,.0f}M parameters are too few to keep a GPU busy, which "
            "is not modelled: expect much less than predicted",
        )
        if model.parameter_count < SMALLEST_BUSY_MODEL
        else ()
    )
    return ThroughputEstimate(
        flops_per_token=flops,
        flops_convention="causal",
        tokens_per_second_per_gpu=FSDP2_BF16_MFU * peak / flops,
        mfu=FSDP2_BF16_MFU,
        bound="compute",
        assumptions=(
            f"model FLOPs utilisation {FSDP2_BF16_MFU:.0%} of dense {precision} peak: FSDP2 on "
            "8 x B200, Llama 3 8B, published by torchao; not measured by this project",
            *small,
        ),
    )

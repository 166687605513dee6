"""Recipe and layout values that can be fixed one at a time, and the defaults of the rest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import (
    GradientSync,
    Optimizer,
    OptimizerImplementation,
    Precision,
)

MAXIMUM_SEQUENCE_LENGTH: Final = 131_072
"""Longest sequence any tier promises."""
LOGIT_BYTES_PER_CHUNK: Final = 2 * 1024**3
"""Logits are computed in pieces of at most about this size, counted in fp32."""
TOKENS_PER_PARAMETER: Final = 20
"""Compute-optimal training length (Hoffmann et al. 2022, "Chinchilla", table 3)."""
GLOBAL_BATCH_TOKENS: Final = 4 * 1024**2
"""Tokens per step of Llama 2 (Touvron et al. 2023, section 2.2) and of Llama 3's beginning."""
LARGEST_DEFAULT_BATCH_TOKENS: Final = 16 * 1024**2
"""Tokens per step at the end of Llama 3's training (2024, section 3.4.1); a default batch stays
below it where context parallelism can make it, however many GPUs there are."""


@dataclass(frozen=True, kw_only=True)
class RecipeOverrides:
    """Values that replace the recipe's own; None leaves the choice to it.

    What each means, its unit and its range stand at the field of the same name of ``Recipe``.
    """

    precision: Precision | None = None
    micro_batch_size: int | None = None
    activation_checkpointing: str | None = None
    loss_chunks: int | None = None
    compile: bool | None = None
    seed: int | None = None
    bf16_edge_blocks: int | None = None
    optimizer: Optimizer | None = None
    optimizer_implementation: OptimizerImplementation | None = None
    """Replaces only this value of the optimizer."""


@dataclass(frozen=True, kw_only=True)
class LayoutOverrides:
    """Values of the layout to fix; None leaves the choice to the search.

    What each means, its unit and its range stand at the field of the same name of ``Layout``.
    """

    shard_gpus: int | None = None
    replicas: int | None = None
    context_parallel: int | None = None
    ulysses: int | None = None
    tensor_parallel: int | None = None
    reshard_after_forward: bool | None = None
    gradient_sync: GradientSync | None = None


NO_OVERRIDES: Final = RecipeOverrides()
ANY_LAYOUT: Final = LayoutOverrides()


def default_optimizer(model: ModelShape, *, train_steps: int) -> Optimizer:
    """AdamW as the Llama models used it (betas 0.9 and 0.95, decay 0.1, clip 1.0, cosine to 10 %).

    The peak learning rate is 3e-4 (Llama 2 and 3, 7B and 8B) and rises as width falls, by the
    inverse of hidden size over 4096, to at most 1e-3. Above that width it falls in the same way,
    which gives 1.5e-4 at 8192, the rate of Llama 2 70B. Warm-up is 2,000 steps (Llama 2), but
    never more than a tenth of a short run.
    """
    return Optimizer(
        peak_learning_rate=min(1e-3, 3e-4 * 4096 / model.hidden_size),
        minimum_learning_rate_ratio=0.1,
        warmup_steps=min(2000, train_steps // 10),
        beta1=0.9,
        beta2=0.95,
        epsilon=1e-8,
        weight_decay=0.1,
        gradient_clip_norm=1.0,
    )


def default_loss_chunks(model: ModelShape, *, tokens: int) -> int:
    """Pieces, a power of two, so that one piece of fp32 logits stays near 2 GiB.

    ``tokens`` are those of one GPU and micro-batch.
    """
    pieces = -(-tokens * model.vocab_size * 4 // LOGIT_BYTES_PER_CHUNK)
    return 1 << (pieces - 1).bit_length()


def default_train_tokens(model: ModelShape) -> int:
    """20 tokens per parameter."""
    return TOKENS_PER_PARAMETER * model.parameter_count


def default_global_batch_tokens(
    *, sequence_length: int, gpus: int, tensor_parallel: int = 1, context_parallel: int | None
) -> int:
    """About 4M tokens, so that every data-parallel rank has a power of two of sequences.

    With many GPUs and long sequences one sequence per GPU would be more than any useful batch:
    then the smallest power of two of GPUs that brings it to 16M shares a sequence
    (``context_parallel`` fixes how many share one).
    """
    ranks = gpus // tensor_parallel
    shared = context_parallel or 1
    while (
        context_parallel is None
        and ranks % (2 * shared) == 0
        and sequence_length * ranks // shared > LARGEST_DEFAULT_BATCH_TOKENS
    ):
        shared *= 2
    unit = sequence_length * ranks // shared
    return unit << max(0, round(GLOBAL_BATCH_TOKENS / unit).bit_length() - 1)

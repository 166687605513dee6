"""The small tier's recipe: the five groups of decisions, each overridable one at a time.

This project's policy, after the article it follows (see the README): BF16, batch raised as far as
memory allows, activation checkpointing only where needed, one node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Optimizer, Precision

SMALL_TIER_PARAMETERS: Final = 7_000_000_000
"""Largest model of the small tier."""
MAXIMUM_SEQUENCE_LENGTH: Final = 131_072
"""Longest sequence any tier promises."""
CHECKPOINTING_LADDER: Final = ("none", "selective", "full")
"""From fastest to smallest: the first that fits is taken."""
LOGIT_BYTES_PER_CHUNK: Final = 2 * 1024**3
"""Logits are computed in pieces of at most about this size."""


@dataclass(frozen=True, kw_only=True)
class RecipeOverrides:
    """Values that replace the recipe's own; None leaves the choice to the recipe."""

    precision: Precision | None = None
    micro_batch_size: int | None = None
    activation_checkpointing: str | None = None
    loss_chunks: int | None = None
    compile: bool | None = None
    seed: int | None = None
    optimizer: Optimizer | None = None


NO_OVERRIDES: Final = RecipeOverrides()


def default_optimizer(model: ModelShape, *, train_steps: int) -> Optimizer:
    """AdamW as the Llama models used it (betas 0.9 and 0.95, decay 0.1, clip 1.0, cosine to 10 %).

    The peak learning rate is 3e-4 (Llama 2 and 3, 7B and 8B) and rises as width falls, by the
    inverse of hidden size over 4096, to at most 1e-3. Warm-up is 2,000 steps (Llama 2), but never
    more than a tenth of a short run.
    """
    return Optimizer(
        peak_learning_rate=min(1e-3, 3e-4 * max(1.0, 4096 / model.hidden_size)),
        minimum_learning_rate_ratio=0.1,
        warmup_steps=min(2000, train_steps // 10),
        beta1=0.9,
        beta2=0.95,
        epsilon=1e-8,
        weight_decay=0.1,
        gradient_clip_norm=1.0,
    )


def default_loss_chunks(model: ModelShape, *, tokens: int) -> int:
    """Pieces, a power of two, so that one piece of fp32 logits stays near 2 GiB."""
    chunks = 1
    while tokens * model.vocab_size * 4 / chunks > LOGIT_BYTES_PER_CHUNK:
        chunks *= 2
    return chunks

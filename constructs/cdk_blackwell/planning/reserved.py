"""Memory that the allocator holds: the upper bound that a plan must fit into.

PyTorch's caching allocator keeps one pool for every stream and gives nothing of one to another, so
each pool is as large as its own peak: computation, gathering of weights, reduced gradients. Inside
the computing pool, freed memory serves only what fits into it.

Held to published ``max_memory_reserved`` of other stacks on H100, H200, MI300X and B200 (-5 % to
+15 %, see the tests); B200 rows lie highest, so the bound is safe where it matters here.
"""

from __future__ import annotations

from typing import Final

from cdk_blackwell.planning.moments import Peaks, held_at_the_loss
from cdk_blackwell.planning.training_step import TrainingStep

EAGER_LOGIT_BYTES: Final = 12
"""Bytes per logit alive in an eager cross-entropy: fp32 logits, their softmax, their gradient.

The trainer compiles blocks, not the loss, so this holds for compiled runs too. Fused losses that
some stacks use need 4.
"""
TENSOR_PARALLEL_SHORTFALL: Final = 0.24
"""Share by which predictions for tensor parallelism were low, at most, against published runs
(19 to 24 %); its collectives hold buffers that no formula here counts."""
FRAGMENTATION: Final = 0.02
"""Share of what a step allocates and frees that is lost to remainders of split blocks; an
allowance between the published rows, not derived."""


def reserved_parts(step: TrainingStep, peaks: Peaks) -> dict[str, float]:
    """Bytes by kind; their sum is the bound."""
    computing = _computing_pool(step, peaks)
    reduced = step.gradients
    if step.accumulates:
        # The newest reduction's result, before it is added.
        reduced += step.block_gradients / step.shard_gpus
    rest = computing - step.optimizer_state - step.whole_gradients - step.kept_weights
    activations = min(step.saved, rest)
    return {
        "weights_and_optimizer": step.optimizer_state,
        "gradients": reduced + step.whole_gradients,
        "gathered_weights": step.kept_weights + _gathering_pool(step),
        "activations": activations,
        # Logits, gradients of activations, and recomputed activations.
        "temporaries": rest - activations,
    }


def margin(step: TrainingStep, reserved: float) -> float:
    """Bytes to add for what is known to be missing from the bound."""
    if step.tensor_parallel == 1:
        return 0.0
    return reserved * TENSOR_PARALLEL_SHORTFALL / (1 - TENSOR_PARALLEL_SHORTFALL)


def _computing_pool(step: TrainingStep, peaks: Peaks) -> float:
    at_the_loss = peaks.moments["loss"].computing
    loss = at_the_loss - held_at_the_loss(step)
    hole = 0.0
    if step.logit_bytes >= EAGER_LOGIT_BYTES and step.width < 4:
        # 16-bit logits are freed once they are 32-bit, which do not fit into their place.
        hole = step.width * step.logits
    pool = max(peaks.computing, at_the_loss + hole)
    pool += FRAGMENTATION * (pool - step.optimizer_state)
    if step.compiled:
        return pool
    # Plain operations allocate one by one. What the loss leaves is cut into pieces by the first
    # small tensors, so the blocks' large ones find no room in it, nor the loss in theirs.
    blocks = step.block.recomputed(step.activation_checkpointing) + step.block.temporaries
    return pool + min(loss + hole, blocks)


def _gathering_pool(step: TrainingStep) -> float:
    """Two groups at a time in forward; shards are cast before they are sent."""
    if step.ranks == 1:
        return 0.0
    pair = step.gathered_block + max(step.gathered_block, step.matrix)
    return pair * (1 + 1 / step.ranks)

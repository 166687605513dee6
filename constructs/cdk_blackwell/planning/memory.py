"""Memory per GPU of one training step, predicted from the model's shape.

Allocated memory is the largest of a handful of moments of a step, each the sum of what is alive
then (``moments``). The trainer's own model agrees with it on CPU, on fake tensors under PyTorch's
FSDP memory tracker (``trainer.oracle``); no B200 was used. What compiled blocks keep from forward
to backward is what torch's partitioner keeps on CPU, byte by byte; what their kernels hold during
the backward pass is derived by hand and not verified.

With plain operations a peak in the optimizer step is what that tracker counts, which is more than a
GPU allocates: torch works out the sharding of ``addcdiv_(parameter, moment, denominator)`` on whole
fake tensors, once for every shape, and the tracker takes these three for real ones. So 64B on 16
GPUs shows 71.3 GiB: 16N/16 = 59.3, a shard of the denominators (0.2), and 3 x 3.9 GiB that never
exist. A second step, when shapes are known, peaks in the backward pass at 69.2 GiB instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cdk_blackwell.planning.hardware import memory_budget_gib
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.moments import find_peaks
from cdk_blackwell.planning.reserved import EAGER_LOGIT_BYTES, margin, reserved_parts
from cdk_blackwell.planning.run_spec import GradientSync
from cdk_blackwell.planning.training_step import training_step

GIB: Final = 1024**3


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Predicted GiB per GPU."""

    allocated_gib: float
    """Peak of live tensors."""
    reserved_gib: float
    """Upper bound of what the allocator holds."""
    margin_gib: float
    """Added to it before it must fit: what the bound is known to miss (tensor parallelism)."""
    budget_gib: float
    peak_moment: str
    """When in the step ``allocated_gib`` is reached."""
    kernels: Literal["compiled", "eager"]
    """What the blocks are taken to run: compiled kernels, or plain operations one by one."""
    parts_gib: dict[str, float]
    """What the reserved memory consists of."""

    @property
    def required_gib(self) -> float:
        """Reserved memory and margin together: what must stay within the budget."""
        return self.reserved_gib + self.margin_gib

    @property
    def fits(self) -> bool:
        """Whether it does."""
        return self.required_gib <= self.budget_gib


def estimate_memory(
    model: ModelShape,
    *,
    tokens: int,
    sequence_length: int,
    shard_gpus: int,
    context_parallel: int = 1,
    ulysses: int = 1,
    tensor_parallel: int = 1,
    reshard_after_forward: bool = True,
    gradient_sync: GradientSync = "micro_batch",
    activation_checkpointing: str,
    loss_chunks: int,
    precision: str = "bf16",
    bf16_blocks: int = 0,
    compiled: bool = False,
    foreach_optimizer: bool = False,
    accumulates: bool = False,
    logit_bytes: float | None = None,
) -> MemoryEstimate:
    """Predict the peak of a step.

    :param tokens: per GPU and micro-batch: micro-batch x sequence / context parallel.
    :param sequence_length: of whole sequences.
    :param shard_gpus: ranks that share one copy of the parameters; replicas change nothing.
    :param ulysses: ranks of ``context_parallel`` that exchange heads; the others gather keys.
    :param reshard_after_forward: False keeps the gathered weights over a step's micro-batches.
    :param gradient_sync: ``step`` keeps whole fp32 gradients over several micro-batches.
    :param bf16_blocks: that keep bf16 in an 8-bit precision; their saved activations are counted
        as those of the others, which are no fewer.
    :param foreach_optimizer: AdamW over all parameters at once, which makes a further fp32 copy of
        them; fused makes none.
    :param accumulates: several micro-batches per step.
    :param logit_bytes: alive per logit in the loss. Default: 12, those of this trainer's loss.
    """
    step = training_step(
        model,
        tokens=tokens,
        sequence_length=sequence_length,
        shard_gpus=shard_gpus,
        context_parallel=context_parallel,
        ulysses=ulysses,
        tensor_parallel=tensor_parallel,
        keeps_weights=not reshard_after_forward,
        accumulates=accumulates,
        accumulates_whole=accumulates and gradient_sync == "step",
        activation_checkpointing=activation_checkpointing,
        loss_chunks=loss_chunks,
        precision=precision,
        bf16_blocks=bf16_blocks,
        compiled=compiled,
        foreach_optimizer=foreach_optimizer,
        logit_bytes=EAGER_LOGIT_BYTES if logit_bytes is None else logit_bytes,
    )
    peaks = find_peaks(step)
    moment, allocated = peaks.highest
    parts = reserved_parts(step, peaks)
    # Live memory is held memory: the bound never lies below the peak.
    parts["temporaries"] += max(0.0, allocated - sum(parts.values()))
    reserved = sum(parts.values())
    return MemoryEstimate(
        allocated_gib=allocated / GIB,
        reserved_gib=reserved / GIB,
        margin_gib=margin(step, reserved) / GIB,
        budget_gib=memory_budget_gib(),
        peak_moment=moment,
        kernels="compiled" if compiled else "eager",
        parts_gib={name: value / GIB for name, value in parts.items()},
    )

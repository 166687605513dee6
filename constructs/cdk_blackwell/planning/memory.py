"""Memory per GPU of one training step, predicted from the model's shape.

The peak is the largest of a handful of moments of a step, each the sum of what is alive then
(``peak_moments``). Bytes are counted for FSDP2 with fp32 master weights, AdamW, gradients reduced
in fp32 and flash attention. The moments were derived from, and agree to a thousandth with, runs of
a real training step under PyTorch's FSDP memory tracker (CPU, fake process group, plain
operations), and the trainer's own model is held to them in the same way; no B200 was used. What
compiled blocks keep is derived by hand and not verified.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from cdk_blackwell.planning.activations import BlockActivations, block_activations
from cdk_blackwell.planning.hardware import memory_budget_gib
from cdk_blackwell.planning.model_shape import ModelShape

GIB: Final = 1024**3

LOGIT_BYTES: Final = 12
"""Bytes per logit alive in an eager cross-entropy: fp32 logits, their softmax, their gradient.

The trainer compiles blocks, not the loss, so this holds for compiled runs too. Fused losses that
some stacks use need 4.
"""


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Predicted GiB per GPU."""

    allocated_gib: float
    """Peak of live tensors."""
    reserved_gib: float
    """Upper bound of what the allocator holds; this is what must fit."""
    budget_gib: float
    peak_moment: str
    """When in the step ``allocated_gib`` is reached."""
    parts_gib: dict[str, float]
    """What the reserved memory consists of."""

    @property
    def fits(self) -> bool:
        """Whether reserved memory stays within the budget."""
        return self.reserved_gib <= self.budget_gib


@dataclass(frozen=True, kw_only=True)
class TrainingStep:
    """What one GPU does in one micro-batch."""

    model: ModelShape
    tokens: int
    """Tokens per GPU and micro-batch."""
    sequence_length: int
    shard_gpus: int
    activation_checkpointing: str
    loss_chunks: int
    precision: str = "bf16"
    compiled: bool = False
    foreach_optimizer: bool = False
    """AdamW over all parameters at once, which makes a further fp32 copy; fused makes none."""
    accumulates: bool = False
    """Several micro-batches per step: sharded gradients outlive the backward pass."""
    torchtitan_layout: bool = False
    """Embedding and head each in an FSDP group of their own; ``every:K`` begins with block 1.

    In this library's trainer both belong to the root, gathered once per step and reduced at its
    end, and ``every:K`` begins with block K.
    """
    logit_bytes: float = LOGIT_BYTES

    @property
    def width(self) -> int:
        """Bytes of a number in forward and backward."""
        return 4 if self.precision == "fp32" else 2

    @property
    def vocabulary_parameters(self) -> int:
        """Parameters of embedding and head, counted once when tied."""
        matrices = 1 if self.model.tie_word_embeddings else 2
        return matrices * self.model.embedding_parameter_count

    @property
    def hidden_bytes(self) -> int:
        """One activation of hidden size for all tokens."""
        return self.width * self.model.hidden_size * self.tokens

    @cached_property
    def block(self) -> BlockActivations:
        """What one block keeps and computes."""
        return block_activations(
            self.model,
            tokens=self.tokens,
            sequence_length=self.sequence_length,
            width=self.width,
            compiled=self.compiled,
        )

    @cached_property
    def block_modes(self) -> tuple[str, ...]:
        """``none``, ``selective`` or ``full`` for each block, the first one first."""
        interval = checkpointing_interval(self.activation_checkpointing)
        first = 0 if self.torchtitan_layout else 1
        layers = range(first, first + self.model.num_hidden_layers)
        if interval is None:
            return (self.activation_checkpointing,) * len(layers)
        return tuple("none" if number % interval else "full" for number in layers)


def estimate_memory(
    model: ModelShape,
    *,
    tokens: int,
    sequence_length: int,
    shard_gpus: int,
    activation_checkpointing: str,
    loss_chunks: int,
    precision: str = "bf16",
    compiled: bool = False,
    foreach_optimizer: bool = False,
    accumulates: bool = False,
    torchtitan_layout: bool = False,
    logit_bytes: float = LOGIT_BYTES,
) -> MemoryEstimate:
    """Predict the peak for ``tokens`` per GPU and micro-batch (see ``TrainingStep``)."""
    step = TrainingStep(
        model=model,
        tokens=tokens,
        sequence_length=sequence_length,
        shard_gpus=shard_gpus,
        activation_checkpointing=activation_checkpointing,
        loss_chunks=loss_chunks,
        precision=precision,
        compiled=compiled,
        foreach_optimizer=foreach_optimizer,
        accumulates=accumulates,
        torchtitan_layout=torchtitan_layout,
        logit_bytes=logit_bytes,
    )
    moments = peak_moments(step)
    moment = max(moments, key=lambda name: moments[name])
    parts = _reserved_parts(step)
    # Live memory is held memory: the bound never lies below the peak.
    short = moments[moment] - sum(parts.values())
    if short > 0:
        parts["gathered_weights"] += short
    return MemoryEstimate(
        allocated_gib=moments[moment] / GIB,
        reserved_gib=sum(parts.values()) / GIB,
        budget_gib=memory_budget_gib(),
        peak_moment=moment,
        parts_gib={name: value / GIB for name, value in parts.items()},
    )


def saved_bytes(step: TrainingStep) -> float:
    """Bytes kept from forward to backward by all blocks."""
    return sum(count * step.block.saved(mode) for mode, count in Counter(step.block_modes).items())


def peak_moments(step: TrainingStep) -> dict[str, float]:
    """Bytes alive at each moment that can be the peak."""
    n, shards = step.model.parameter_count, step.shard_gpus
    optimizer = (20 if step.foreach_optimizer else 16) * n / shards
    return {
        **_loss_moments(step),
        **_backward_moments(step),
        "optimizer step": optimizer,
    }


def _static(step: TrainingStep) -> float:
    """Master weights and Adam's two moments; gradients too when they outlive a micro-batch."""
    return (16 if step.accumulates else 12) * step.model.parameter_count / step.shard_gpus


def _loss_moments(step: TrainingStep) -> dict[str, float]:
    matrix = step.width * step.model.embedding_parameter_count
    # The root's backward pass begins with the loss and gathers the last block ahead.
    root = step.width * (step.vocabulary_parameters + step.model.layer_parameter_count)
    gathered = matrix if step.torchtitan_layout else root
    alive = _static(step) + gathered + saved_bytes(step) + 2 * step.hidden_bytes
    logits = step.tokens * step.model.vocab_size / step.loss_chunks
    chunk_gradients = matrix + step.hidden_bytes if step.loss_chunks > 1 else 0.0
    moments = {
        "loss": alive + step.logit_bytes * logits + chunk_gradients,
        # Gradients of the head: accumulated, new and their sum.
        "head backward": alive
        + step.hidden_bytes
        + max(2 * matrix + step.width * logits, 3 * matrix),
    }
    if step.torchtitan_layout:
        reduced = step.model.embedding_parameter_count
        moments["head gradient reduction"] = (
            _static(step)
            + saved_bytes(step)
            + step.hidden_bytes
            + matrix
            + 4 * reduced * (1 + 1 / step.shard_gpus)
        )
    return moments


def _backward_moments(step: TrainingStep) -> dict[str, float]:
    """Walk the blocks from last to first."""
    block, model, shards = step.block, step.model, step.shard_gpus
    n_block = model.layer_parameter_count
    vocabulary = model.embedding_parameter_count
    alive = _static(step)
    if step.torchtitan_layout:
        reducing, reduced = 4.0 * vocabulary, 4 * vocabulary / shards
    else:
        # The root stays gathered, and the head's gradient waits for the end of the pass.
        alive += step.width * (step.vocabulary_parameters + vocabulary)
        reducing, reduced = 0.0, 0.0
    saved = saved_bytes(step)
    kept = {mode: block.saved(mode) for mode in set(step.block_modes)}
    peaks = {mode: block.backward_peaks(mode) for mode in kept}
    moments: dict[str, float] = {}
    for index in reversed(range(model.num_hidden_layers)):
        mode = step.block_modes[index]
        gathered = step.width * n_block * (2 if index else 1)
        below = saved - kept[mode]
        for name, value in peaks[mode].items():
            total = alive + gathered + reducing + reduced + below + value
            moments[name] = max(total, moments.get(name, 0.0))
        saved = below
        reducing = 4.0 * n_block
        reduced = 4 * n_block / shards + (0.0 if step.accumulates else reduced)
    if not step.torchtitan_layout:
        # The gathered weights are free by now; gradients are copied in fp32 to be reduced.
        root = step.vocabulary_parameters
        blocks = 0 if step.accumulates else 4 * model.num_hidden_layers * n_block / shards
        moments["root gradient reduction"] = _static(step) + blocks + (step.width + 4) * root
    return moments


def _reserved_parts(step: TrainingStep) -> dict[str, float]:
    """Upper bound by kind: the allocator's pools are per stream and do not share."""
    n, shards = step.model.parameter_count, step.shard_gpus
    block, matrix = step.block, step.width * step.model.embedding_parameter_count
    if step.torchtitan_layout:
        vocabulary = 3.0 * matrix
    else:
        # Gathered weights and the head's gradient, then all gradients of the root in fp32.
        vocabulary = (step.width + 4) * step.vocabulary_parameters + matrix
    checkpointed = step.activation_checkpointing != "none"
    logits = step.logit_bytes * step.tokens * step.model.vocab_size / step.loss_chunks
    return {
        "weights_and_optimizer": 12 * n / shards,
        "gradients": 4 * n / shards,
        "activations": saved_bytes(step) + 3 * step.hidden_bytes,
        "recomputation": block.saved("none") - step.hidden_bytes if checkpointed else 0.0,
        "logits": logits,
        "block_temporaries": block.temporaries,
        "gathered_weights": vocabulary + 6 * step.width * step.model.layer_parameter_count,
    }

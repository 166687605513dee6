"""What one GPU does in one micro-batch, in bytes: the quantities that all moments are made of.

Counted for FSDP2 with fp32 master weights, AdamW and gradients reduced in fp32. Every block, the
embedding and the head are FSDP groups of their own; a tied matrix belongs to the root, which stays
gathered from forward to the end of backward. Tensor-parallel ranks share the blocks' matrices and
shard the rest among themselves; FSDP shards both once more.
"""

from __future__ import annotations

from typing import NamedTuple

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from cdk_blackwell.planning.activations import BlockActivations, block_activations
from cdk_blackwell.planning.model_shape import ModelShape


class TrainingStep(NamedTuple):
    """Bytes on one GPU, where nothing else is said."""

    layers: int
    tied: bool
    compiled: bool
    foreach_optimizer: bool
    chunked_loss: bool
    accumulates: bool
    """Several micro-batches per step: gradients outlive the backward pass."""
    keeps_weights: bool
    """Gathered weights stay from the first micro-batch of a step to the last."""
    width: int
    """Of a number in forward and backward."""
    shard_gpus: int
    ranks: int
    """That share the parameters in one way or the other."""
    tensor_parallel: int
    activation_checkpointing: str
    interval: int | None
    """Blocks 0, K, 2K, ... keep their input only; None when all blocks are alike."""
    block: BlockActivations
    saved_by_mode: dict[str, float]
    """Kept by one block."""
    block_gradients: float
    """fp32 gradients of one block before FSDP shards them."""
    gathered_block: float
    """Weights of one block as gathered; fp8 scaled by tensor travels and lies in 8 bits."""
    matrix: float
    """A vocabulary matrix as gathered, or its gradient: never split by tensor parallelism."""
    matrix_gradient: float
    """The same in fp32."""
    hidden: float
    """One activation of hidden size for all tokens."""
    logits: float
    """Numbers in one piece of the logits."""
    logit_bytes: float
    optimizer_state: float
    """Master weights and Adam's two moments."""
    gradients: float
    """All gradients, reduced and sharded."""
    whole_gradients: float
    """All gradients in fp32 before reduction, where a step accumulates them so, else 0."""
    kept_weights: float
    """Gathered weights of all blocks, and of an embedding of its own, where they stay, else 0."""

    def saved_below(self, index: int) -> float:
        """Kept from forward to backward by the first ``index`` blocks."""
        if self.interval is None:
            return index * self.saved_by_mode[self.activation_checkpointing]
        full = -(-index // self.interval)
        return full * self.saved_by_mode["full"] + (index - full) * self.saved_by_mode["none"]

    def mode(self, index: int) -> str:
        """``none``, ``selective`` or ``full`` of one block."""
        if self.interval is None:
            return self.activation_checkpointing
        return "none" if index % self.interval else "full"

    @property
    def saved(self) -> float:
        """Kept from forward to backward by all blocks."""
        return self.saved_below(self.layers)

    @property
    def reduces_at_once(self) -> bool:
        """Gradients of several micro-batches meet reduced and sharded."""
        return self.accumulates and not self.whole_gradients

    @property
    def earlier_gradients(self) -> float:
        """Reduced gradients of the step's micro-batches before this one."""
        return self.gradients if self.reduces_at_once else 0.0

    @property
    def left_over(self) -> float:
        """Buffer of the last reduction of one micro-batch, given up at the first of the next."""
        return self.matrix_gradient if self.reduces_at_once else 0.0

    @property
    def gathered_head(self) -> float:
        """What the gathering stream holds when the forward pass ends.

        FSDP gives up the buffer of what it gathered last, the head or, where that is tied, a block,
        when the whole pass is over.
        """
        kept = self.keeps_weights and self.accumulates
        last, ranks = (
            (self.gathered_block, self.shard_gpus) if self.tied else (self.matrix, self.ranks)
        )
        return 0.0 if kept or ranks == 1 else last

    def gathering(self, weights: float) -> float:
        """What the gathering stream holds for weights gathered ahead of their use."""
        return 0.0 if self.keeps_weights or self.shard_gpus == 1 else weights


def training_step(
    model: ModelShape,
    *,
    tokens: int,
    sequence_length: int,
    shard_gpus: int,
    context_parallel: int,
    ulysses: int,
    tensor_parallel: int,
    keeps_weights: bool,
    accumulates: bool,
    accumulates_whole: bool,
    activation_checkpointing: str,
    loss_chunks: int,
    precision: str,
    bf16_blocks: int,
    compiled: bool,
    foreach_optimizer: bool,
    logit_bytes: float,
) -> TrainingStep:
    """The quantities for a model, a layout and a recipe (see ``memory.estimate_memory``)."""
    width = 4 if precision == "fp32" else 2
    interval = checkpointing_interval(activation_checkpointing)
    if interval == 1:
        interval = None
    block = block_activations(
        model,
        tokens=tokens,
        sequence_length=sequence_length,
        width=width,
        precision=precision,
        compiled=compiled,
        context_parallel=context_parallel,
        ulysses=ulysses,
        tensor_parallel=tensor_parallel,
    )
    layers, tied = model.num_hidden_layers, model.tie_word_embeddings
    block_parameters = model.layer_parameter_count / tensor_parallel
    vocabulary = model.embedding_parameter_count
    # The peak lies at the first or the last block, which are the ones that keep bf16.
    in_one_byte = precision == "fp8" and not bf16_blocks
    gathered_block = (1 if in_one_byte else width) * block_parameters
    gathered_blocks = width * layers * block_parameters
    if precision == "fp8":
        gathered_blocks -= (layers - bf16_blocks) * block_parameters
    ranks = shard_gpus * tensor_parallel
    whole = layers * block_parameters + (1 if tied else 2) * vocabulary
    kept = gathered_blocks + (0 if tied else width * vocabulary)
    modes = ("none", "full") if interval else (activation_checkpointing,)
    return TrainingStep(
        layers=layers,
        tied=tied,
        compiled=compiled,
        foreach_optimizer=foreach_optimizer,
        chunked_loss=loss_chunks > 1,
        accumulates=accumulates,
        keeps_weights=keeps_weights,
        width=width,
        shard_gpus=shard_gpus,
        ranks=ranks,
        tensor_parallel=tensor_parallel,
        activation_checkpointing="full" if interval else activation_checkpointing,
        interval=interval,
        block=block,
        saved_by_mode={mode: block.saved(mode) for mode in modes},
        block_gradients=4 * block_parameters,
        gathered_block=gathered_block,
        matrix=width * vocabulary,
        matrix_gradient=4.0 * vocabulary,
        hidden=block.hidden,
        logits=tokens * model.vocab_size / loss_chunks,
        logit_bytes=logit_bytes,
        optimizer_state=12 * model.parameter_count / ranks,
        gradients=4 * model.parameter_count / ranks,
        whole_gradients=4 * whole if accumulates_whole else 0.0,
        kept_weights=kept if keeps_weights else 0.0,
    )

"""Floating-point operations of one token: what the model needs, and what a step executes.

A matrix of ``n`` weights costs ``2n`` FLOPs per token forward and ``4n`` backward. Only matrix
products and attention are counted, as everywhere in the field.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from cdk_blackwell.planning.model_shape import ModelShape

FlopsConvention = Literal["causal", "palm"]

MATRIX_PASSES: Final = 3
"""Forward, gradient of the input, gradient of the weight."""
ATTENTION_PASSES: Final = 3.5
"""Flash attention in units of its forward pass: two products forward, five backward (one of them
computes the scores again). The conventions count 3."""


def flops_per_token(
    model: ModelShape, sequence_length: int, convention: FlopsConvention = "causal"
) -> float:
    """Forward and backward FLOPs per token, recomputation not counted.

    ``causal`` counts half of the attention matrix (NVIDIA's convention), ``palm`` all of it (PaLM's
    and torchtitan's). The input embedding is a look-up and costs none. The few weights of norms and
    biases count as those of matrices, as in both.
    """
    matrices = model.parameter_count - model.embedding_parameter_count
    if model.tie_word_embeddings:
        matrices += model.embedding_parameter_count
    attention = 3 * model.num_hidden_layers * attention_flops(model, sequence_length)
    return 6 * matrices + (attention if convention == "causal" else 2 * attention)


def block_weights(model: ModelShape) -> int:
    """Elements of one block's seven matrices."""
    h = model.hidden_size
    projections = h * (2 * model.query_size + 2 * model.key_value_size)
    return projections + 3 * h * model.intermediate_size


def attention_flops(model: ModelShape, sequence_length: int) -> float:
    """Of one token, layer and forward pass: two products over half of the sequence, causally."""
    return 2.0 * model.query_size * sequence_length


class Recomputation(NamedTuple):
    """What activation checkpointing computes a second time, averaged over the blocks."""

    weights: float
    """Elements of the matrices multiplied again, per block."""
    attention: float
    """Share of blocks whose attention runs again."""
    elementwise: float
    """Share of blocks whose norms, rotations and activations run again."""


def recomputation(model: ModelShape, activation_checkpointing: str) -> Recomputation:
    """``full`` repeats a block except its last product's use; ``selective`` every second product.

    In the order q, k, v, o, gate, up, down the even ones (k, o, up) are repeated: the trainer keeps
    the odd ones and the attention output (``trainer.activation_checkpointing.SelectivePolicy``).
    """
    if activation_checkpointing == "none":
        return _NOTHING
    if activation_checkpointing == "selective":
        repeated = model.key_value_size + model.query_size + model.intermediate_size
        return Recomputation(weights=model.hidden_size * repeated, attention=0.0, elementwise=1.0)
    interval = checkpointing_interval(activation_checkpointing)
    assert interval is not None, activation_checkpointing
    share = -(-model.num_hidden_layers // interval) / model.num_hidden_layers
    return Recomputation(weights=share * block_weights(model), attention=share, elementwise=share)


_NOTHING: Final = Recomputation(weights=0.0, attention=0.0, elementwise=0.0)

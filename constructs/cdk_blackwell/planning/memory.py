"""Memory per GPU of one training step, predicted from the model's shape.

Bytes are counted for FSDP2 with fp32 master weights, AdamW, BF16 compute and flash attention. The
peak is the largest of four moments of a step. Symbols follow the literature: h hidden, k key-value
width, f feed-forward, L layers, V vocabulary, a heads, N parameters, F ranks that shard, t tokens
per micro-batch on one GPU. The formulas were checked against runs of the real training step under
PyTorch's FSDP memory tracker (CPU, fake process group) and published B200 numbers; no B200 was
used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from cdk_blackwell.planning.hardware import memory_budget_gib
from cdk_blackwell.planning.model_shape import ModelShape

GIB: Final = 1024**3


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Predicted GiB per GPU."""

    allocated_gib: float
    """Peak of live tensors."""
    reserved_gib: float
    """Upper bound of what the allocator holds; this is what must fit."""
    budget_gib: float
    parts_gib: dict[str, float]
    """What the reserved memory consists of."""

    @property
    def fits(self) -> bool:
        """Whether reserved memory stays within the budget."""
        return self.reserved_gib <= self.budget_gib


def saved_bytes_per_token(
    model: ModelShape, activation_checkpointing: str, *, compiled: bool
) -> float:
    """Bytes kept from forward to backward, per token, over all layers."""
    h, q, k = model.hidden_size, model.query_size, model.key_value_size
    f, a = model.intermediate_size, model.num_attention_heads
    none = 8 * h + 4 * k + 4 * f + 4 * a if compiled else 8 * h + 4 * q + 4 * k + 8 * f + 4 * a + 8
    selective = 6 * h + 2 * q + 2 * k + 2 * f + 4 * a
    full = 2 * h
    if activation_checkpointing == "selective":
        per_layer: float = selective
    else:
        interval = checkpointing_interval(activation_checkpointing)
        share = 0.0 if interval is None else 1.0 / interval
        per_layer = share * full + (1 - share) * none
    return model.num_hidden_layers * per_layer


def estimate_memory(
    model: ModelShape,
    *,
    tokens: int,
    shard_gpus: int,
    activation_checkpointing: str,
    loss_chunks: int,
    precision: str = "bf16",
    compiled: bool = False,
    fused_optimizer: bool = True,
) -> MemoryEstimate:
    """Predict the peak for ``tokens`` per GPU and micro-batch, sharded over ``shard_gpus``.

    ``precision`` fp32 doubles what is saved and gathered; compiled code needs a third of the
    logits' temporaries.
    """
    h, f = model.hidden_size, model.intermediate_size
    n_layer, n = model.layer_parameter_count, model.parameter_count
    embedding = model.embedding_parameter_count
    width = 2 if precision == "fp32" else 1
    t, shards = tokens, shard_gpus

    none_one_layer = saved_bytes_per_token(model, "none", compiled=compiled) / max(
        1, model.num_hidden_layers
    )
    saved = width * t * saved_bytes_per_token(model, activation_checkpointing, compiled=compiled)
    one_layer_saved = saved / model.num_hidden_layers
    recomputed = 0 if activation_checkpointing == "none" else width * t * none_one_layer
    temporaries = width * t * (8 * f + 2 * h)
    logits = t * model.vocab_size * (4 if compiled else 12) / loss_chunks
    chunk_gradient = 4 * embedding if loss_chunks > 1 else 0
    hidden_stream = width * 6 * h * t

    at_loss = (
        12 * n / shards + width * 2 * embedding + saved + hidden_stream + logits + chunk_gradient
    )
    first_backward = (
        12 * n / shards
        + width * 4 * n_layer
        + 4 * embedding
        + saved
        + recomputed
        + temporaries
        + width * 2 * h * t
        + 4 * embedding / shards
    )
    last_backward = (
        16 * n / shards + width * 12 * n_layer + one_layer_saved + recomputed + temporaries
    )
    optimizer = (16 if fused_optimizer else 20) * n / shards
    parts = {
        "weights_and_optimizer": 12 * n / shards,
        "gradients": 4 * n / shards,
        "activations": saved + hidden_stream,
        "recomputation": recomputed,
        "logits": logits,
        "block_temporaries": temporaries,
        "gathered_weights": width * (6 * embedding + 12 * n_layer),
    }
    return MemoryEstimate(
        allocated_gib=max(at_loss, first_backward, last_backward, optimizer) / GIB,
        reserved_gib=sum(parts.values()) / GIB,
        budget_gib=memory_budget_gib(),
        parts_gib={name: value / GIB for name, value in parts.items()},
    )

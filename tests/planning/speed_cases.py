"""Models, layouts and recipes that the tests of speed share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from cdk_blackwell.planning.hardware import P6_B200, Node
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import default_optimizer
from cdk_blackwell.planning.run_spec import Layout, Recipe
from cdk_blackwell.planning.throughput import ThroughputEstimate, estimate_throughput

LLAMA_8B = ModelShape.preset("llama-3.1-8b")
LLAMA_70B = replace(
    LLAMA_8B,
    name="llama-3-70b",
    hidden_size=8192,
    intermediate_size=28_672,
    num_hidden_layers=80,
    num_attention_heads=64,
)
# Its feed-forward has two matrices of 24,576 (squared ReLU): as many FLOPs as three of 16,384.
NEMOTRON_15B = replace(
    LLAMA_8B,
    name="nemotron-4-15b",
    vocab_size=256_000,
    hidden_size=6144,
    intermediate_size=16_384,
    num_attention_heads=48,
)


def a_layout(shard_gpus: int = 8, **changes: Any) -> Layout:
    values: dict[str, Any] = {
        "replicas": 1,
        "context_parallel": 1,
        "tensor_parallel": 1,
        **changes,
    }
    return Layout(shard_gpus=shard_gpus, **values)


def a_recipe(layout: Layout, *, micro_batches: int = 1, **changes: Any) -> Recipe:
    """With a global batch of ``micro_batches`` forward passes."""
    values: dict[str, Any] = {
        "precision": "bf16",
        "sequence_length": 8192,
        "micro_batch_size": 1,
        "activation_checkpointing": "none",
        "loss_chunks": 1,
        "compile": True,
        "seed": 0,
        "optimizer": default_optimizer(LLAMA_8B, train_steps=1000),
        **changes,
    }
    per_pass = values["sequence_length"] * values["micro_batch_size"] * layout.data_parallel
    return Recipe(global_batch_tokens=per_pass * micro_batches, **values)


def speed(
    layout: Layout,
    *,
    model: ModelShape = LLAMA_8B,
    node: Node = P6_B200,
    **changes: Any,
) -> ThroughputEstimate:
    recipe = a_recipe(layout, **changes)
    return estimate_throughput(model, layout=layout, recipe=recipe, node=node)

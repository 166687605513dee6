"""Predicted speed against published training runs. No run of this project is among them."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_blackwell.planning.accelerators import DGX_H100, GB200, H100, H200
from cdk_blackwell.planning.hardware import P6_B200, Node
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.throughput import megatron_class
from tests.planning.speed_cases import LLAMA_8B, LLAMA_70B, NEMOTRON_15B, a_layout, a_recipe, speed

SELECTIVE: dict[str, Any] = {"activation_checkpointing": "selective"}
LONG: dict[str, Any] = {"sequence_length": 131_072, "activation_checkpointing": "full"}
MEGATRON: dict[str, Any] = {"reshard_after_forward": False, "gradient_sync": "step"}


@pytest.mark.parametrize(
    ("published", "node", "context_parallel", "recipe"),
    [
        # torchtitan, 8 x H100.
        (5762, H100, 1, {"micro_batch_size": 2, "compile": False, **SELECTIVE}),
        (6667, H100, 1, {"micro_batch_size": 2, **SELECTIVE}),
        (8532, H100, 1, {"micro_batch_size": 2, "precision": "fp8", **SELECTIVE}),
        # Our copy of the table calls this row bf16; torchtitan heads its table of context parallel
        # runs with float8. Attention takes most of the time, so both must do.
        (1071, H100, 4, {**LONG, "precision": "bf16"}),
        (1071, H100, 4, {**LONG, "precision": "fp8"}),
        # torchao, 8 x B200.
        (8308, P6_B200, 1, SELECTIVE),
        (10417, P6_B200, 1, {"precision": "fp8", **SELECTIVE}),
        (9969, P6_B200, 1, {"precision": "mxfp8", **SELECTIVE}),
        (8641, P6_B200, 1, {"precision": "fp8_rowwise", **SELECTIVE}),
    ],
)
def test_fsdp2_is_predicted_within_20_percent(
    published: float, node: Node, context_parallel: int, recipe: dict[str, Any]
) -> None:
    layout = a_layout(context_parallel=context_parallel)
    predicted = speed(layout, node=node, **recipe).tokens_per_second_per_gpu
    assert predicted == pytest.approx(published, rel=0.2)


@pytest.mark.parametrize(
    ("precision", "gain"), [("fp8_rowwise", 0.04), ("mxfp8", 0.20), ("fp8", 0.25)]
)
def test_low_precision_gains_on_b200_what_was_published(precision: str, gain: float) -> None:
    bf16 = speed(a_layout(), **SELECTIVE).tokens_per_second_per_gpu
    low = speed(a_layout(), precision=precision, **SELECTIVE).tokens_per_second_per_gpu
    assert low / bf16 - 1 == pytest.approx(gain, abs=0.05)


@pytest.mark.parametrize(
    ("published", "model", "node", "shard_gpus", "layout", "micro_batches", "recipe"),
    [
        # Megatron-Bridge 25.11: micro-batch 2, global batch 128.
        (30624, LLAMA_8B, P6_B200, 8, MEGATRON, 8, {"precision": "fp8", "micro_batch_size": 2}),
        (29521, LLAMA_8B, P6_B200, 8, MEGATRON, 8, {"precision": "mxfp8", "micro_batch_size": 2}),
        # NeMo 25.02.
        (
            *(14760, NEMOTRON_15B, P6_B200, 64, MEGATRON, 2),
            {"precision": "fp8", "micro_batch_size": 2, "sequence_length": 4096},
        ),
        # Megatron-Bridge 26.04; the row does not name its checkpointing.
        (4224, LLAMA_70B, GB200, 64, {}, 2, {"precision": "fp8", "micro_batch_size": 2}),
        # Its four pipeline stages are not modelled; without bubbles they cost no time.
        (3712, LLAMA_70B, GB200, 32, {**MEGATRON, "tensor_parallel": 2}, 8, {"precision": "mxfp8"}),
    ],
)
def test_the_megatron_class_band_holds_the_published_rows(
    published: float,
    model: ModelShape,
    node: Node,
    shard_gpus: int,
    layout: dict[str, Any],
    micro_batches: int,
    recipe: dict[str, Any],
) -> None:
    divided = a_layout(shard_gpus, **layout)
    band = megatron_class(
        model,
        layout=divided,
        recipe=a_recipe(divided, micro_batches=micro_batches, **recipe),
        node=node,
    )
    assert band.low <= published <= band.high
    assert band.high < 2.1 * band.low


def test_utilisation_of_the_published_b200_run_is_19_percent_of_bf16_peak() -> None:
    found = speed(a_layout(), **SELECTIVE)
    assert found.mfu == pytest.approx(0.19, abs=0.01)
    assert found.mfu_palm / found.mfu == pytest.approx(1.12, abs=0.01)
    assert found.hfu > found.mfu


def test_a_hopper_at_700_watts_is_faster_than_one_held_at_500() -> None:
    held, dgx, h200 = (
        speed(a_layout(), node=node, **SELECTIVE).tokens_per_second_per_gpu
        for node in (H100, DGX_H100, H200)
    )
    assert held < dgx < h200 < 1.4 * held

"""Blocks at the ends that keep bf16: counted in speed, traffic and memory, refused where idle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdk_blackwell.planning import make_plan
from cdk_blackwell.planning.communication import weight_bytes
from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import Plan
from cdk_blackwell.planning.predictions import predict
from cdk_blackwell.planning.recipes import RecipeOverrides

MODEL = ModelShape.preset("llama-3.1-8b")


def plan_of(edge: int | None, **overrides: Any) -> Plan:
    settings = RecipeOverrides(bf16_edge_blocks=edge, **overrides)
    return make_plan(model=MODEL, sequence_length=8192, instance_count=1, overrides=settings)


def test_it_is_a_value_of_the_recipe() -> None:
    assert plan_of(None).recipe.bf16_edge_blocks == 0
    assert plan_of(2).recipe.bf16_edge_blocks == 2


def test_speed_lies_between_8_bits_and_bf16_by_the_share_of_blocks() -> None:
    plan = plan_of(0)

    def seconds(**changes: Any) -> float:
        recipe = replace(plan.recipe, **changes)
        speed = predict(MODEL, plan.layout, recipe).tokens_per_second_per_gpu
        return 1 / speed

    eight, some, all_bf16 = seconds(), seconds(bf16_edge_blocks=4), seconds(precision="bf16")
    assert eight < some < all_bf16
    assert (some - eight) / (all_bf16 - eight) == pytest.approx(8 / 32, rel=0.1)
    assert seconds(bf16_edge_blocks=16) == pytest.approx(all_bf16, rel=0.02)


def test_their_weights_are_gathered_in_two_bytes() -> None:
    more = weight_bytes(MODEL, "fp8", 4) - weight_bytes(MODEL, "fp8")
    assert more == 4 * MODEL.layer_parameter_count
    assert weight_bytes(MODEL, "fp8", 32) == weight_bytes(MODEL, "bf16")


@pytest.mark.parametrize("reshards", [True, False])
def test_memory_lies_between_8_bits_and_bf16(reshards: bool) -> None:
    plan = plan_of(0)
    layout = replace(plan.layout, reshard_after_forward=reshards)

    def gib(**changes: Any) -> tuple[float, float]:
        memory = predict(MODEL, layout, replace(plan.recipe, **changes)).memory
        return memory.allocated_gib, memory.reserved_gib

    eight, some, all_bf16 = gib(), gib(bf16_edge_blocks=2), gib(precision="bf16")
    for less, between, most in zip(eight, some, all_bf16, strict=True):
        assert less <= between <= most
    assert eight[1] < some[1]
    # Where weights are not kept, the peak itself is at the loss, when none of a block is gathered.
    assert (eight[0] == some[0]) if reshards else (eight[0] < some[0])


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        ({"edge": 2, "precision": "bf16"}, "bf16_edge_blocks is 2, but precision is bf16"),
        ({"edge": 16}, "bf16_edge_blocks is 16"),
        ({"edge": -1}, "bf16_edge_blocks is -1"),
        ({"edge": True}, "bf16_edge_blocks is True"),
    ],
)
def test_what_would_do_nothing_is_refused(overrides: dict[str, Any], reason: str) -> None:
    with pytest.raises(PlanError, match=reason):
        plan_of(**overrides)

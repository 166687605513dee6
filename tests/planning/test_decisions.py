"""Why a plan is as it is: five groups in order, true reasons, alternatives in numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_blackwell.planning.errors import DoesNotFitError, PlanError
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.neighbours import neighbouring_layouts
from cdk_blackwell.planning.plan import Plan, make_plan
from cdk_blackwell.planning.predictions import predict
from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides
from cdk_blackwell.planning.run_spec import Precision
from cdk_blackwell.planning.tiers import GROUPS, TIERS

MODELS = {"small": "llama-2-7b", "mid": "llama-3.1-8b", "large-sharded": "llama-3-64b"}


def planned(model: str, sequence_length: int = 8192, **more: Any) -> Plan:
    return make_plan(model=ModelShape.preset(model), sequence_length=sequence_length, **more)


@pytest.mark.parametrize("tier", TIERS)
def test_the_five_groups_come_in_order_each_with_the_tiers_recommendation(tier: str) -> None:
    decisions = planned(MODELS[tier]).decisions
    assert tuple(decision.group for decision in decisions) == GROUPS
    for decision in decisions:
        assert decision.recommendation == TIERS[tier].advice[decision.group]  # type: ignore[index]
        assert decision.reason


@pytest.mark.parametrize("tier", TIERS)
def test_an_untouched_plan_follows_the_article_in_every_group(tier: str) -> None:
    assert [d.group for d in planned(MODELS[tier]).decisions if not d.follows] == []


@pytest.mark.parametrize(
    ("model", "overrides", "departs"),
    [
        ("llama-2-7b", {"precision": "fp32"}, ["precision"]),
        ("llama-3.1-8b", {"precision": "bf16"}, ["precision"]),
        ("llama-3.1-8b", {"precision": "mxfp8"}, []),
        ("llama-3.1-8b", {"activation_checkpointing": "none"}, ["activation_checkpointing"]),
        ("llama-2-7b", {"activation_checkpointing": "full"}, ["activation_checkpointing"]),
        ("llama-2-7b", {"micro_batch_size": 1}, ["batch"]),
    ],
)
def test_a_departure_is_named_and_said_to_be_given(
    model: str, overrides: dict[str, Any], departs: list[str]
) -> None:
    decisions = planned(model, 4096, overrides=RecipeOverrides(**overrides)).decisions
    assert [decision.group for decision in decisions if not decision.follows] == departs
    for decision in decisions:
        if decision.group in departs:
            assert "was given" in decision.reason


def test_more_than_a_few_nodes_depart_from_the_mid_tiers_recommendation() -> None:
    few, many = (
        planned("llama-3.1-8b", instance_count=count).decisions[3].follows for count in (8, 16)
    )
    assert (few, many) == (True, False)


def test_values_are_those_of_the_plan() -> None:
    plan = planned("llama-3-64b", instance_count=4)
    values = {key: item for decision in plan.decisions for key, item in decision.values.items()}
    assert values["micro_batch_size"] == plan.recipe.micro_batch_size
    assert values["precision"] == plan.recipe.precision == "fp8"
    assert values["shard_gpus"] == plan.layout.shard_gpus
    assert values["gpus"] == 32


@pytest.mark.parametrize("tier", TIERS)
def test_alternatives_are_predicted_with_all_else_as_chosen(tier: str) -> None:
    plan = planned(MODELS[tier])
    by_group = {decision.group: decision.alternatives for decision in plan.decisions}
    for alternative in by_group["activation_checkpointing"]:
        found = predict(
            plan.model,
            plan.layout,
            replace(plan.recipe, activation_checkpointing=alternative.value),
        )
        assert alternative.required_gib == found.memory.required_gib
        assert alternative.fits is found.memory.fits
        assert alternative.tokens_per_second_per_gpu == found.tokens_per_second_per_gpu
    assert plan.recipe.activation_checkpointing not in {
        alternative.value for alternative in by_group["activation_checkpointing"]
    }
    assert by_group["distribution"]


def test_a_larger_batch_that_was_not_chosen_does_not_fit() -> None:
    plan = planned("llama-2-7b")
    chosen = plan.recipe.micro_batch_size
    batch = plan.decisions[0]
    assert "largest predicted to fit" in batch.reason
    larger = [one for one in batch.alternatives if int(one.value.split()[-1]) > chosen]
    assert larger
    assert not any(one.fits for one in larger)


@given(
    model=st.sampled_from(sorted({*MODELS.values(), "olmo-2-13b", "qwen2.5-0.5b"})),
    sequence_length=st.sampled_from([2048, 32_768, 131_072]),
)
@settings(deadline=None, max_examples=15)
def test_neighbours_differ_from_the_plan_and_use_the_same_gpus(
    model: str, sequence_length: int
) -> None:
    plan = planned(model, sequence_length)
    for other in neighbouring_layouts(plan.wish, plan.layout):
        assert other != plan.layout
        assert other.gpus == plan.gpus
        assert other.shard_gpus % other.context_parallel == 0
        assert other.context_parallel % other.ulysses == 0
        assert sequence_length % other.context_parallel == 0
        assert other.tensor_parallel == 1 or plan.model.qk_norm != "full"


@pytest.mark.parametrize(
    "layout",
    [
        {"tensor_parallel": 2},
        {"context_parallel": 16},
        {"context_parallel": 4, "ulysses": 2},
        {"context_parallel": 4, "ulysses": 4},
    ],
)
def test_every_alternative_precision_can_be_had_with_the_layout_chosen(
    layout: dict[str, Any],
) -> None:
    wish: dict[str, Any] = {
        "model": ModelShape.preset("llama-3.1-8b"),
        "sequence_length": 65_536,
        "instance_count": 2,
    }
    fixed = LayoutOverrides(**layout)
    plan = make_plan(**wish, overrides=RecipeOverrides(precision="bf16"), layout=fixed)
    (precision,) = (one for one in plan.decisions if one.group == "precision")
    shown = {one.value for one in precision.alternatives}
    for other in get_args(Precision):
        if other == "bf16":
            continue
        try:
            make_plan(**wish, overrides=RecipeOverrides(precision=other), layout=fixed)
            possible = True
        except DoesNotFitError:
            possible = True
        except PlanError:
            possible = False
        assert possible == (other in shown), other

"""The small tier's plan: what it chooses, what it refuses and how it says so."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_blackwell.planning.cost import worst_case_usd
from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.hardware import peak_flops
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan
from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides
from cdk_blackwell.planning.throughput import flops_per_token

LLAMA_1B = ModelShape.preset("llama-3.2-1b")
LLAMA_7B = ModelShape.preset("llama-2-7b")
WISH: dict[str, Any] = {
    "tier": "small",
    "model": LLAMA_7B,
    "sequence_length": 4096,
    "global_batch_tokens": 4_194_304,
    "train_tokens": 10**11,
}


def test_up_to_7b_is_bf16_on_one_node_without_checkpointing_and_with_a_large_batch() -> None:
    plan = make_plan(**WISH)
    assert plan.recipe.precision == "bf16"
    assert plan.recipe.activation_checkpointing == "none"
    assert plan.recipe.micro_batch_size >= 4
    assert (plan.layout.shard_gpus, plan.layout.replicas) == (8, 1)
    assert plan.memory.fits


def test_the_micro_batch_divides_each_gpus_share() -> None:
    plan = make_plan(**WISH)
    share = 4_194_304 // 4096 // 8
    assert share % plan.recipe.micro_batch_size == 0


def test_checkpointing_comes_only_when_the_sequence_needs_it() -> None:
    short = make_plan(**{**WISH, "sequence_length": 8192})
    long = make_plan(
        **{**WISH, "sequence_length": 131_072}, layout=LayoutOverrides(context_parallel=1)
    )
    assert short.recipe.activation_checkpointing == "none"
    assert long.recipe.activation_checkpointing != "none"
    assert long.memory.fits


def test_128k_tokens_are_planned_in_every_tier_without_offloading() -> None:
    for tier, name, instances in (
        ("small", "llama-2-7b", 1),
        ("mid", "llama-3.1-8b", 1),
        ("large-sharded", "llama-3-64b", 4),
    ):
        plan = make_plan(
            tier=tier,  # type: ignore[arg-type]
            model=ModelShape.preset(name),
            sequence_length=131_072,
            instance_count=instances,
        )
        assert plan.memory.fits
        assert plan.layout.context_parallel > 1
        assert plan.layout.gpus == 8 * instances
        assert plan.recipe.precision == ("bf16" if tier == "small" else "fp8")


def test_the_large_tier_is_sharded_within_the_fewest_nodes_that_hold_it() -> None:
    plan = make_plan(
        tier="large-sharded",
        model=ModelShape.preset("llama-3-64b"),
        sequence_length=8192,
        instance_count=4,
    )
    assert (plan.layout.shard_gpus, plan.layout.replicas) == (16, 2)
    assert plan.layout.tensor_parallel == 1
    assert plan.recipe.activation_checkpointing != "none"


def test_the_mid_tier_starts_small_and_grows_by_divisors_of_the_share() -> None:
    plan = make_plan(
        tier="mid", model=ModelShape.preset("llama-3.1-8b"), sequence_length=8192, instance_count=1
    )
    share = plan.recipe.global_batch_tokens // 8192 // plan.layout.data_parallel
    assert plan.recipe.batch_growth
    assert all(share % size == 0 for size in plan.recipe.batch_growth)
    assert plan.recipe.batch_growth[0] > plan.recipe.micro_batch_size


def test_a_tiny_model_is_planned_too() -> None:
    tiny = replace(LLAMA_1B, vocab_size=4096, hidden_size=256, num_hidden_layers=4, head_dim=8)
    plan = make_plan(
        tier="small",
        model=tiny,
        sequence_length=256,
        global_batch_tokens=4096,
        train_tokens=819_200,
    )
    share = 4096 // 256 // plan.layout.data_parallel
    assert share % plan.recipe.micro_batch_size == 0
    assert plan.memory.fits


def test_every_decision_can_be_overridden_one_at_a_time() -> None:
    overrides = RecipeOverrides(
        precision="fp32", micro_batch_size=1, activation_checkpointing="every:2", seed=7
    )
    recipe = make_plan(**WISH, overrides=overrides).recipe
    assert recipe.precision == "fp32"
    assert recipe.micro_batch_size == 1
    assert recipe.activation_checkpointing == "every:2"
    assert recipe.seed == 7


def test_without_a_price_no_cost_is_invented() -> None:
    assert make_plan(**WISH).cost.usd is None
    priced = make_plan(**WISH, hourly_price_usd=100.0).cost
    assert priced.usd == pytest.approx(priced.hours * 100.0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model": ModelShape.preset("llama-3.1-8b")}, r"8\.03B parameters.*MidModelJob"),
        ({"tier": "mid"}, r"6\.74B parameters.*SmallModelJob"),
        ({"tier": "large-sharded"}, r"6\.74B parameters.*SmallModelJob"),
        ({"sequence_length": 0}, "sequence_length is 0"),
        ({"sequence_length": 131_073}, "131,072"),
        ({"sequence_length": 4096.5}, "4096.5"),
        ({"sequence_length": True}, "True"),
        ({"global_batch_tokens": 4_194_305}, "use 4,194,304 or 4,227,072"),
        ({"global_batch_tokens": 4095}, "use 4,096"),
        ({"train_tokens": 10**30}, "train_tokens"),
        ({"train_tokens": -5}, "train_tokens is -5"),
        ({"instance_count": 2}, "instance_count is 2"),
        ({"hourly_price_usd": 0.0}, "hourly_price_usd"),
        ({"hourly_price_usd": float("nan")}, "hourly_price_usd"),
        ({"overrides": RecipeOverrides(micro_batch_size=3)}, "micro_batch_size is 3"),
        ({"overrides": RecipeOverrides(micro_batch_size="x")}, "a whole number from 1"),  # type: ignore
        ({"global_batch_tokens": 10**30}, "global_batch_tokens"),
        ({"overrides": RecipeOverrides(micro_batch_size=0)}, "micro_batch_size is 0"),
        ({"overrides": RecipeOverrides(activation_checkpointing="some")}, "every:K"),
        (
            {
                "overrides": RecipeOverrides(micro_batch_size=128),
                "layout": LayoutOverrides(context_parallel=1, tensor_parallel=1),
            },
            r"GiB",
        ),
        ({"overrides": RecipeOverrides(activation_checkpointing=4)}, "every:K"),  # type: ignore
        ({"overrides": RecipeOverrides(precision="fp4")}, "bf16, fp32"),  # type: ignore
        ({"overrides": RecipeOverrides(seed=-1)}, "seed is -1"),
        ({"overrides": RecipeOverrides(compile=1)}, "compile is 1"),  # type: ignore
        ({"overrides": RecipeOverrides(optimizer=1)}, "give an Optimizer"),  # type: ignore
        ({"model": "llama"}, "ModelShape.preset"),
        ({"hourly_price_usd": True}, "hourly_price_usd is True"),
        ({"overrides": RecipeOverrides(loss_chunks=0)}, "loss_chunks is 0"),
    ],
)
def test_a_wish_that_cannot_be_planned_is_refused_with_the_way_out(
    change: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        make_plan(**{**WISH, **change})


def test_a_suggested_global_batch_passes() -> None:
    make_plan(**{**WISH, "global_batch_tokens": 4_227_072})


@given(
    micro_batch_size=st.sampled_from([None, 1, 2, 4, 8, 16, 32, 64, 128]),
    activation_checkpointing=st.sampled_from([None, "none", "selective", "full", "every:2"]),
    loss_chunks=st.sampled_from([None, 1, 8]),
    precision=st.sampled_from([None, "bf16", "fp32"]),
    sequence_length=st.sampled_from([2048, 8192, 32_768]),
)
@settings(deadline=None)
def test_a_plan_fits_and_every_suggested_change_does_too(
    sequence_length: int, **pinned: Any
) -> None:
    wish = {**WISH, "sequence_length": sequence_length, "global_batch_tokens": 2**25}
    overrides = RecipeOverrides(**pinned)
    try:
        plan = make_plan(**wish, overrides=overrides)
    except PlanError as error:
        message = str(error)
        suggestions = message.partition(": use ")[2]
        assert suggestions, message
        for suggestion in suggestions.split(" or "):
            values = {
                name: value.replace(",", "")
                for name, value in re.findall(
                    r"(micro_batch_size|activation_checkpointing|loss_chunks|precision|"
                    r"sequence_length) (\S+)",
                    suggestion,
                )
            }
            assert values, message
            length = int(values.pop("sequence_length", sequence_length))
            changes: dict[str, Any] = {
                name: int(value) if value.isdecimal() else value for name, value in values.items()
            }
            again = make_plan(
                **{**wish, "sequence_length": length}, overrides=replace(overrides, **changes)
            )
            assert again.memory.fits
            assert f"({again.memory.reserved_gib:.1f} GiB)" in suggestion
    else:
        assert plan.memory.fits
        assert plan.memory.reserved_gib >= plan.memory.allocated_gib


def test_the_printed_object_has_the_documented_keys() -> None:
    document = make_plan(**WISH).to_dict()
    assert document["model"]["parameters"] == 6_738_415_616
    assert document["memory"]["fits"] is True
    assert document["throughput"]["flops_convention"] == "causal"
    assert document["cost"]["usd"] is None
    assert document["layout"] == {
        "shard_gpus": 8,
        "replicas": 1,
        "context_parallel": 1,
        "tensor_parallel": 1,
        "ulysses": 1,
        "reshard_after_forward": False,
        "gradient_sync": "step",
    }


def test_flops_follow_the_named_convention() -> None:
    llama = ModelShape.preset("llama-3.1-8b")
    causal = flops_per_token(llama, 8192)
    palm = flops_per_token(llama, 8192, "palm")
    matrices = 6 * (llama.parameter_count - llama.embedding_parameter_count)
    assert causal == pytest.approx(matrices + 6 * 32 * 4096 * 8192)
    assert palm / causal == pytest.approx(1.12, abs=0.01)


def test_only_known_gpus_have_a_peak() -> None:
    assert peak_flops("NVIDIA B200", "bf16") == 2250e12
    assert peak_flops("AMD EPYC", "bf16") is None


def test_the_worst_case_counts_grace_and_upload() -> None:
    assert worst_case_usd(
        max_runtime_seconds=3600, instance_count=2, hourly_price_usd=100.0, upload_seconds=0
    ) == pytest.approx(200.0 * (1 + 120 / 3600))


def test_a_micro_batch_given_alone_is_said_to_be_the_whole_global_batch() -> None:
    alone = RecipeOverrides(micro_batch_size=2)
    wish: dict[str, Any] = {"model": LLAMA_1B, "sequence_length": 8192, "train_tokens": 10**10}
    plan = make_plan(**wish, instance_count=1, overrides=alone)
    (warning,) = plan.warnings
    assert "131,072 tokens a step. Give global_batch_tokens too" in warning
    held = make_plan(**wish, instance_count=1, overrides=alone, global_batch_tokens=4_194_304)
    assert held.warnings == ()

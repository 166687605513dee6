"""Every refusal names the value, the limit and ways out; every way out passes when it is taken."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_blackwell.planning.errors import DoesNotFitError, PlanError
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan
from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides
from cdk_blackwell.planning.request import Request

LARGE: dict[str, Any] = {
    "model": ModelShape.preset("llama-3-64b"),
    "sequence_length": 131_072,
    "instance_count": 2,
}
PRICED: dict[str, Any] = {
    "model": ModelShape.preset("llama-3.1-8b"),
    "sequence_length": 8192,
    "instance_count": 1,
    "hourly_price_usd": 100.0,
}


def refused(**arguments: Any) -> DoesNotFitError:
    with pytest.raises(DoesNotFitError) as caught:
        make_plan(**arguments)
    return caught.value


def test_memory_is_refused_with_the_need_the_budget_and_the_settings_that_decide() -> None:
    error = refused(**LARGE, layout=LayoutOverrides(context_parallel=1))
    assert error.plan is not None
    need = f"{error.plan.memory.reserved_gib:.1f} GiB of {error.plan.memory.budget_gib:.1f} GiB"
    text = str(error)
    assert text.startswith("llama-3-64b at 131,072 tokens on 2 nodes needs ")
    assert need in text
    assert "context_parallel 1" in text
    assert "\n" not in text


def test_the_first_way_out_is_the_setting_that_was_fixed_and_its_memory_is_told() -> None:
    error = refused(**LARGE, layout=LayoutOverrides(context_parallel=1))
    first = error.changes[0]
    assert set(first.settings) == {"context_parallel"}
    assert f"({first.required_gib:.1f} GiB)" in str(error)


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        ({**LARGE, "instance_count": 1}, "instance_count"),
        ({**PRICED, "tier": "small"}, "tier"),
        ({**PRICED, "tier": "large-sharded"}, "tier"),
        ({**PRICED, "max_cost_usd": 10.0}, "max_cost_usd"),
        ({**PRICED, "max_cost_usd": 50_000.0}, "train_tokens"),
    ],
)
def test_each_rule_proposes_the_setting_that_it_is_about(
    arguments: dict[str, Any], setting: str
) -> None:
    changes = refused(**arguments).changes
    assert any(setting in change.settings for change in changes)
    for change in changes:
        make_plan(**change.applied(arguments))


@pytest.mark.parametrize(
    ("length", "micro_batch_size", "shorter"),
    [(131_072, 8, [1024]), (131_072, 64, []), (1537, 512, [])],
)
def test_sequences_are_halved_while_they_stay_whole_and_no_shorter_than_512(
    length: int, micro_batch_size: int, shorter: list[int]
) -> None:
    fixed = RecipeOverrides(
        precision="fp32", activation_checkpointing="none", micro_batch_size=micro_batch_size
    )
    error = refused(**LARGE | {"sequence_length": length}, overrides=fixed)
    found = [each.settings.get("sequence_length") for each in error.changes]
    assert [each for each in found if each] == shorter


def test_a_model_above_all_tiers_is_refused_without_a_false_way_out() -> None:
    giant = replace(ModelShape.preset("llama-3-64b"), name="giant", num_hidden_layers=120)
    error = refused(model=giant, sequence_length=4096)
    assert error.changes == ()
    assert "takes up to 66B" in str(error)
    assert "pipeline parallelism" in str(error)


@given(
    model=st.sampled_from(["llama-2-7b", "olmo-2-7b", "llama-3.1-8b", "yi-34b", "llama-3-64b"]),
    sequence_length=st.sampled_from([4096, 32_768, 131_072]),
    instance_count=st.sampled_from([None, 1, 2, 4]),
    tier=st.sampled_from([None, None, "small", "large-sharded"]),
    recipe=st.fixed_dictionaries(
        {},
        optional={
            "micro_batch_size": st.sampled_from([1, 2, 8, 64]),
            "activation_checkpointing": st.sampled_from(["none", "selective", "every:8", "full"]),
            "loss_chunks": st.sampled_from([1, 16]),
            "precision": st.sampled_from(["bf16", "fp32", "fp8"]),
            "compile": st.just(False),
        },
    ),
    layout=st.fixed_dictionaries(
        {},
        optional={
            "shard_gpus": st.sampled_from([8, 16]),
            "context_parallel": st.sampled_from([1, 2, 8]),
            "tensor_parallel": st.sampled_from([1, 2]),
            "reshard_after_forward": st.booleans(),
            "gradient_sync": st.sampled_from(["step", "micro_batch"]),
        },
    ),
    max_cost_usd=st.sampled_from([None, None, 5.0, 100_000.0]),
)
@settings(deadline=None, max_examples=30)
def test_every_change_that_any_refusal_names_passes(
    recipe: dict[str, Any], layout: dict[str, Any], max_cost_usd: float | None, **wish: Any
) -> None:
    arguments: dict[str, Any] = {
        **wish,
        "model": ModelShape.preset(wish["model"]),
        "overrides": RecipeOverrides(**recipe),
        "layout": LayoutOverrides(**layout),
        "hourly_price_usd": 100.0,
        "max_cost_usd": max_cost_usd,
    }
    try:
        plan = make_plan(**arguments)
    except DoesNotFitError as error:
        for change in error.changes:
            passed = make_plan(**change.applied(arguments))
            if passed.memory.required_gib != pytest.approx(change.required_gib):
                pytest.fail(f"{change} gives {passed.memory.required_gib} GiB")
    except PlanError as error:
        if "\n" in str(error) or len(str(error)) > 400:
            pytest.fail(f"not one line that can be read: {error}")
    else:
        assert plan.memory.fits
        assert max_cost_usd is None or (plan.cost.total_usd or 0) <= max_cost_usd


BARE = Request(model=ModelShape.preset("llama-3.1-8b"), sequence_length=8192)
NUMBERS = (
    *("sequence_length", "global_batch_tokens", "train_tokens", "instance_count", "gpus"),
    *("micro_batch_size", "loss_chunks", "shard_gpus", "replicas", "context_parallel"),
    *("ulysses", "tensor_parallel"),
)
NONSENSE = (0, -1, 1.5, 10**30, True, "8", float("nan"), float("inf"), [8])


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("value", NONSENSE, ids=repr)
def test_every_number_refuses_nonsense_by_its_name(name: str, value: object) -> None:
    with pytest.raises(PlanError, match=f"^{name} is ") as caught:
        make_plan(**vars(BARE.changed({name: value})))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 250


@pytest.mark.parametrize(
    ("settings_given", "words"),
    [
        ({"tensor_parallel": 3}, "tensor_parallel is 3; it must divide the 8 GPUs"),
        ({"ulysses": 16}, "ulysses is 16; it must divide the 8 key-value heads"),
        ({"ulysses": 8, "context_parallel": 4}, "ulysses is 8; it must divide context_parallel 4"),
        ({"sequence_length": 8191, "context_parallel": 2}, "sequence_length is 8,191"),
        ({"context_parallel": 3, "shard_gpus": 8}, "context_parallel is 3; it must divide"),
        ({"gpus": 16, "instance_count": 1}, "gpus is 16 and instance_count is 1"),
        (
            {"shard_gpus": 8, "replicas": 3, "instance_count": 2},
            "16 GPUs that there are: use replicas 2",
        ),
        (
            {"shard_gpus": 7, "replicas": 3, "instance_count": 2},
            "leave out replicas and shard_gpus",
        ),
        (
            {"micro_batch_size": 3, "global_batch_tokens": 2**22, "instance_count": 1},
            "micro_batch_size is 3; it must divide the",
        ),
        ({"global_batch_tokens": 8192 * 8 + 1, "instance_count": 1}, "must be a multiple of"),
        ({"max_cost_usd": 5}, "hourly_price_usd is not given"),
    ],
    ids=str,
)
def test_what_contradicts_is_refused_and_says_what_to_use(
    settings_given: dict[str, Any], words: str
) -> None:
    request = BARE.changed(settings_given)
    with pytest.raises(PlanError) as caught:
        make_plan(**vars(request))
    assert words in str(caught.value)
    assert any(way in str(caught.value) for way in ("use ", "leave", "give"))


@pytest.mark.parametrize(
    "model", ["qwen2.5-0.5b", "qwen2.5-1.5b", "llama-3.2-3b", "mistral-7b", "yi-34b"]
)
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_tensor_parallelism_is_planned_or_refused_for_the_size_that_does_not_divide(
    model: str, ranks: int
) -> None:
    shape = ModelShape.preset(model)
    arguments: dict[str, Any] = {
        "model": shape,
        "sequence_length": 4096,
        "layout": LayoutOverrides(tensor_parallel=ranks),
        "overrides": RecipeOverrides(precision="bf16"),
    }
    broken = [
        name
        for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size")
        if getattr(shape, name) % ranks
    ]
    if not broken:
        assert make_plan(**arguments).layout.tensor_parallel == ranks
        return
    with pytest.raises(PlanError, match=f"does not divide {broken[0]} "):
        make_plan(**arguments)


def test_a_way_out_of_a_cost_ceiling_says_what_it_costs() -> None:
    with pytest.raises(DoesNotFitError) as caught:
        make_plan(
            model=ModelShape.preset("llama-3.2-3b"),
            sequence_length=8192,
            train_tokens=60_000_000_000,
            hourly_price_usd=100.0,
            max_cost_usd=1_000,
        )
    changes = caught.value.changes
    assert changes
    assert all(f"({change.total_usd:,.0f} USD)" in str(caught.value) for change in changes)
    assert all(
        (change.total_usd and change.total_usd <= 1_000) or "max_cost_usd" in change.settings
        for change in changes
    )


KINDS = [0, -1, 1.5, True, "8", "", float("nan"), float("inf"), 10**30, [], {}, b"x", object()]


@pytest.mark.parametrize("value", KINDS, ids=lambda value: str(value)[:9])
@pytest.mark.parametrize("name", [field.name for field in fields(Request)])
def test_a_value_of_any_kind_is_planned_or_refused_in_one_line(name: str, value: Any) -> None:
    said = ""
    try:
        make_plan(**{**PRICED, name: value})
    except PlanError as error:
        said = str(error)
    assert "\n" not in said


@given(
    model=st.sampled_from(["qwen2.5-0.5b", "llama-2-7b", "olmo-2-7b", "llama-3.1-8b"]),
    sequence_length=st.sampled_from([100, 777, 8192, 10_001]),
    instance_count=st.sampled_from([None, 1, 2, 3, 5]),
    precision=st.sampled_from([None, "bf16", "fp32", "fp8"]),
    sizes=st.fixed_dictionaries(
        {
            name: st.sampled_from([None, None, 1, 2, 3, 4, 8, 16, 24])
            for name in (
                *("shard_gpus", "replicas", "context_parallel"),
                *("ulysses", "tensor_parallel"),
            )
        }
    ),
)
@settings(deadline=None, max_examples=150)
def test_no_way_out_of_a_contradiction_leads_into_another(
    model: str, sizes: dict[str, int | None], **wish: Any
) -> None:
    request = Request(model=ModelShape.preset(model), sequence_length=8192).changed(wish | sizes)
    said = contradiction(request)
    for name, value in ways(said):
        assert not contradiction(request.changed({name: value})), said


def contradiction(request: Request) -> str:
    """What a plan for it would say about its layout; empty when nothing contradicts."""
    try:
        make_plan(**vars(request))
    except DoesNotFitError:
        return ""
    except PlanError as error:
        # The batch is another question, asked once a layout exists.
        return "" if str(error).startswith(("global_batch", "micro_batch")) else str(error)
    return ""


def ways(message: str) -> Iterator[tuple[str, Any]]:
    """Every single change that a message offers."""
    offered = re.search(r": (use|leave out) (.*)$", message)
    if offered is None or " and " in offered[2]:
        return
    if offered[1] == "leave out":
        yield offered[2], None
        return
    name = ""
    for word in re.split(r", | or | ", offered[2]):
        if word[0].isdigit():
            yield name, int(word.replace(",", ""))
        elif word in ("bf16",):
            yield name, word
        else:
            name = word

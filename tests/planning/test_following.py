"""A plan follows its trial's winner, except where it asks for something else, and then says so."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.following import check_followed, contradictions
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import Plan, make_plan
from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.trial import TrialCandidate, TrialReport

MODEL = ModelShape.preset("llama-3.1-8b")
ASKED: dict[str, Any] = {
    "model": MODEL,
    "sequence_length": 8192,
    "global_batch_tokens": 4_194_304,
    "instance_count": 1,
}
CHOSEN = make_plan(**ASKED)
WON = make_plan(
    **ASKED,
    overrides=RecipeOverrides(micro_batch_size=1, activation_checkpointing="full"),
    layout=LayoutOverrides(reshard_after_forward=True, gradient_sync="micro_batch"),
)
"""Something that the search would not choose."""


def ran(plan: Plan, tokens_per_second_per_gpu: float) -> TrialCandidate:
    return TrialCandidate(
        layout=plan.layout,
        recipe=replace(plan.recipe, batch_growth=()),
        outcome="ok",
        tokens_per_second_per_gpu=tokens_per_second_per_gpu,
        mfu=None,
        allocated_gib=None,
        reserved_gib=None,
        loss=None,
        message="",
    )


REPORT = TrialReport(
    schema_version=1,
    model=MODEL,
    gpus=8,
    complete=True,
    candidates=(ran(CHOSEN, 9_000.0), ran(WON, 11_000.0)),
    winner=1,
    reason="the fastest",
)


def test_the_winners_layout_recipe_and_speed_become_the_plans() -> None:
    plan = make_plan(**ASKED, measured=REPORT)
    assert plan.layout == WON.layout != CHOSEN.layout
    assert replace(plan.recipe, batch_growth=()) == replace(WON.recipe, batch_growth=())
    assert plan.throughput.tokens_per_second_per_gpu == pytest.approx(11_000)
    assert any("trial's winner" in line for line in plan.assumptions)
    assert not any("trial" in line for line in plan.warnings)


def test_size_and_batch_that_were_left_open_are_the_trials() -> None:
    plan = make_plan(model=MODEL, sequence_length=8192, measured=REPORT)
    assert plan.gpus == 8
    assert plan.recipe.global_batch_tokens == 4_194_304
    assert plan.layout == WON.layout


def test_a_seed_and_a_length_of_the_requests_own_contradict_nothing() -> None:
    plan = make_plan(
        **ASKED, train_tokens=10**10, overrides=RecipeOverrides(seed=7), measured=REPORT
    )
    assert plan.layout == WON.layout
    assert (plan.recipe.seed, plan.train_tokens) == (7, 10**10)


DIFFERENT: dict[str, tuple[dict[str, Any], str]] = {
    "model": (
        {"model": ModelShape.preset("mistral-7b")},
        "model mistral-7b, the trial's llama-3.1-8b",
    ),
    "shape": (
        {"model": replace(MODEL, num_hidden_layers=30)},
        "model llama-3.1-8b, the trial's llama-3.1-8b has another shape",
    ),
    "instances": ({"instance_count": 2}, "16 GPUs, the trial's 8"),
    "gpus": ({"instance_count": None, "gpus": 4}, "4 GPUs, the trial's 8"),
    "sequence": ({"sequence_length": 4096}, "sequence_length 4096, the trial's 8192"),
    "batch": (
        {"global_batch_tokens": 2_097_152},
        "global_batch_tokens 2097152, the winner's 4194304",
    ),
    "micro-batch": (
        {"overrides": RecipeOverrides(micro_batch_size=2)},
        "micro_batch_size 2, the winner's 1",
    ),
    "layout": (
        {"layout": LayoutOverrides(reshard_after_forward=False)},
        "reshard_after_forward False, the winner's True",
    ),
}


@pytest.mark.parametrize("changes_and_words", DIFFERENT.values(), ids=DIFFERENT)
def test_what_the_trial_did_not_run_is_named_and_not_followed(
    changes_and_words: tuple[dict[str, Any], str],
) -> None:
    changes, words = changes_and_words
    request = Request(**{**ASKED, **changes}, measured=REPORT)
    assert contradictions(request) == (words,)
    with pytest.raises(PlanError, match="the trial in 'measured' is of something else"):
        check_followed(request)
    plan = make_plan(**{**ASKED, **changes}, measured=REPORT)
    assert any(words in line for line in plan.warnings)
    assert plan.efficiency is not None
    assert plan.efficiency.name == "measured"


def test_all_that_differs_is_named_at_once() -> None:
    request = Request(**{**ASKED, "instance_count": 4, "sequence_length": 4096}, measured=REPORT)
    with pytest.raises(PlanError, match="32 GPUs, the trial's 8; sequence_length 4096"):
        check_followed(request)


def test_without_a_trial_there_is_nothing_to_contradict() -> None:
    check_followed(Request(**ASKED))

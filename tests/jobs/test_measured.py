"""A job that is given a trial trains with the trial's winner, or refuses the trial by name."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack

from cdk_blackwell import (
    Foundation,
    ModelShape,
    PlanError,
    RecipeOverrides,
    SmallModelJob,
    TrialReport,
    make_plan,
)
from cdk_blackwell.planning.strict_json import plain
from cdk_blackwell.planning.trial import TrialCandidate
from tests.jobs.examples import REGION, SMALL, ZONE, definition_of


def a_trial() -> TrialReport:
    """Of the example job on one instance; what won is not what the search would choose."""
    plan = make_plan(
        tier="small",
        model=SMALL["model"],
        sequence_length=8192,
        global_batch_tokens=1_048_576,
        instance_count=1,
        overrides=RecipeOverrides(micro_batch_size=2, activation_checkpointing="full"),
    )
    winner = TrialCandidate(
        layout=plan.layout,
        recipe=replace(plan.recipe, batch_growth=()),
        outcome="ok",
        tokens_per_second_per_gpu=50_000.0,
        mfu=None,
        allocated_gib=None,
        reserved_gib=None,
        loss=None,
        message="",
    )
    return TrialReport(
        schema_version=1,
        model=plan.model,
        gpus=8,
        complete=True,
        candidates=(winner,),
        winner=0,
        reason="the only one",
    )


def a_job(stack: Stack, **props: Any) -> SmallModelJob:
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    return SmallModelJob(stack, "Train", foundation=foundation, **{**SMALL, **props})


@pytest.fixture
def stack() -> Stack:
    return Stack(App(), "Stack", env=Environment(region=REGION))


def test_plan_layout_and_recipe_of_the_run_are_the_winners(stack: Stack) -> None:
    trial = a_trial()
    job = a_job(stack, measured=TrialReport.from_json(trial.to_json()))
    winner = trial.candidates[0]
    run = definition_of(stack).run
    assert run["layout"] == plain(asdict(winner.layout))
    assert run["recipe"]["micro_batch_size"] == 2
    assert run["recipe"]["activation_checkpointing"] == "full"
    assert job.plan.throughput.tokens_per_second_per_gpu == pytest.approx(50_000)
    assert job.instance_count == 1


@pytest.mark.parametrize(
    ("props", "words"),
    [
        ({"model": ModelShape.preset("llama-3.2-3b")}, "model llama-3.2-3b, the trial's llama-3.2"),
        ({"instance_count": 2}, "16 GPUs, the trial's 8"),
        ({"sequence_length": 4096}, "sequence_length 4096, the trial's 8192"),
        ({"overrides": RecipeOverrides(micro_batch_size=4)}, "micro_batch_size 4, the winner's 2"),
    ],
)
def test_a_trial_of_something_else_is_refused_by_name(
    stack: Stack, props: dict[str, Any], words: str
) -> None:
    with pytest.raises(PlanError, match=words):
        a_job(stack, **props, measured=a_trial())


def test_a_trial_that_nothing_survived_is_refused(stack: Stack) -> None:
    trial = a_trial()
    lost = replace(
        trial.candidates[0],
        outcome="out_of_memory",
        tokens_per_second_per_gpu=None,
        message="no memory",
    )
    none = replace(trial, candidates=(lost,), winner=None, reason="none fits")
    with pytest.raises(PlanError, match=r"no winner \(none fits\)"):
        a_job(stack, measured=none)

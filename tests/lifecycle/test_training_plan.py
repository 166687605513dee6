"""Under a training plan an attempt ends before SageMaker ends it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.errors import LaunchRefused
from cdk_blackwell.lifecycle.handler.training_plan import seconds_left
from tests.lifecycle.fakes import REGION
from tests.lifecycle.world import World, definition

ARN = f"arn:aws:sagemaker:{REGION}:123456789012:training-plan/plan"
ENDED_BEFORE, AROUND = 1_800, 900 + 120 + 1_800


def at(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def under_plan(world: World, *, hours: float = 100.0, **changes: Any) -> JobDefinition:
    """A job under a plan that began an hour ago and has ``hours`` left."""
    now = world.time.now()
    world.sagemaker.plans["plan"] = {
        "TrainingPlanName": "plan",
        "Status": "Active",
        "StartTime": at(now - 3_600),
        "EndTime": at(now + hours * 3_600),
        **changes,
    }
    request = definition().request
    resources = {**request["ResourceConfig"], "TrainingPlanArn": ARN}
    return definition(request={**request, "ResourceConfig": resources}, hourly_price_usd=0.0)


def run_seconds(world: World, attempt: int = 1) -> int:
    request = world.sagemaker.jobs[world.name("a", attempt)]["Request"]
    return int(request["StoppingCondition"]["MaxRuntimeInSeconds"])


def test_far_from_its_end_the_jobs_own_limit_stands(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=under_plan(world))
    assert run_seconds(world) == 86_400


def test_an_attempt_stops_and_uploads_before_the_instances_are_taken(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=under_plan(world, hours=10))
    assert run_seconds(world) == 36_000 - ENDED_BEFORE - AROUND


def test_a_later_attempt_has_what_is_left_then(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=under_plan(world, hours=10))
    world.time.sleep(18_000)
    world.fails(world.name("a"), "InternalServerError: again", step=100)
    assert run_seconds(world, 2) == 18_000 - ENDED_BEFORE - AROUND


def test_a_launch_that_could_do_nothing_is_refused(world: World) -> None:
    seconds = ENDED_BEFORE + AROUND + 899
    answer = world.cloudformation(
        "Create", run_id="a", job=under_plan(world, hours=seconds / 3_600)
    )
    assert answer["Status"] == "FAILED"
    assert "leaves less than 15 minutes" in answer["Reason"]
    assert world.sagemaker.created == []


def test_a_run_whose_plan_is_over_ends_and_says_so(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=under_plan(world, hours=2))
    world.time.sleep(6_000)
    world.fails(world.name("a"), "InternalServerError: again", step=100)
    assert len(world.sagemaker.created) == 1
    assert world.run_state("a") == "failed"
    assert "has no time left" in world.sns.messages[-1]["Message"]


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"Status": "Expired"}, "its status is Expired"),
        ({"Status": "Failed", "StatusMessage": "not paid"}, "not paid"),
        ({"EndTime": at(1_000)}, "has no time left"),
        ({}, "has no time left"),
    ],
)
def test_a_plan_that_is_over_is_named(plan: dict[str, Any], words: str) -> None:
    with pytest.raises(LaunchRefused, match=words):
        seconds_left({"TrainingPlanName": "plan", "StartTime": at(0), **plan}, 2_000, least=900)


def test_a_plan_that_is_not_there_is_refused(world: World) -> None:
    job = under_plan(world)
    world.sagemaker.plans.clear()
    answer = world.cloudformation("Create", run_id="a", job=job)
    assert answer["Status"] == "FAILED"
    assert f"no training plan {ARN}" in answer["Reason"]


BLOCKS = [
    {"StartTime": at(0), "EndTime": at(100_000)},
    {"StartTime": at(200_000), "EndTime": at(300_000)},
]


@pytest.mark.parametrize(
    ("now", "begins", "end"),
    [
        (50_000, 50_000, 100_000),
        # Too little is left of the first to be worth an attempt.
        (96_000, 200_000, 300_000),
        # Between the blocks a job waits for the second.
        (150_000, 200_000, 300_000),
        # Nothing is enough: what is left first is what the refusal speaks of.
        (296_000, 296_000, 300_000),
    ],
)
@pytest.mark.parametrize("blocks", [BLOCKS, BLOCKS[::-1]], ids=["in order", "turned round"])
def test_of_two_blocks_the_one_that_runs_counts_then_the_next(
    blocks: list[dict[str, Any]], now: float, begins: float, end: float
) -> None:
    plan = {"TrainingPlanName": "plan", "ReservedCapacitySummaries": blocks}
    assert seconds_left(plan, now, least=900) == int(end - begins) - ENDED_BEFORE - AROUND


@pytest.mark.parametrize(
    ("hours", "cause"), [(100.0, "run_time_used_up"), (10.0, "plan_ended")], ids=["own", "plan's"]
)
def test_whose_limit_an_attempt_reached_is_told(world: World, hours: float, cause: str) -> None:
    world.cloudformation("Create", run_id="a", job=under_plan(world, hours=hours))
    world.time.sleep(run_seconds(world))
    name = world.name("a")
    world.deliver(world.job_event(world.sagemaker.end(name, "Stopped", "MaxRuntimeExceeded")))
    attempt = world.attempt("a")
    assert attempt is not None
    assert attempt.cause == cause
    assert world.run_state("a") == "stopped"

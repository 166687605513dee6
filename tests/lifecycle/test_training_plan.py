"""Under a training plan an attempt ends before SageMaker ends it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cdk_blackwell.lifecycle.handler.clock import utc
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.errors import LaunchRefused
from cdk_blackwell.lifecycle.handler.training_plan import TimeLeft, time_left
from tests.lifecycle.fakes import REGION, error
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
    assert "has no time left" in last_message(world)


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
        time_left({"TrainingPlanName": "plan", "StartTime": at(0), **plan}, 2_000, least=900)


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
    left = TimeLeft(begins=begins, seconds=int(end - begins) - ENDED_BEFORE - AROUND)
    assert time_left(plan, now, least=900) == left


DAY = 86_400


def last_message(world: World) -> str:
    return str(world.sns.messages[-1]["Message"])


def two_blocks(world: World) -> JobDefinition:
    """A job that may run for days, in a plan of 10 hours now and 20 hours the day after next."""
    now = world.time.now()
    job = under_plan(
        world,
        ReservedCapacitySummaries=[
            {"StartTime": at(now - 3_600), "EndTime": at(now + 36_000)},
            {"StartTime": at(now + 2 * DAY), "EndTime": at(now + 2 * DAY + 72_000)},
        ],
    )
    condition = {**job.request["StoppingCondition"], "MaxRuntimeInSeconds": 5 * DAY}
    return replace(job, request={**job.request, "StoppingCondition": condition})


def uses_up_its_time(world: World, attempt: int = 1, *, step: int = 100) -> None:
    """The attempt runs until SageMaker stops it at the limit of its request."""
    world.time.sleep(run_seconds(world, attempt))
    world.progress(step)
    ends(world, attempt, "MaxRuntimeExceeded")


def ends(world: World, attempt: int, secondary: str = "", reason: str = "") -> None:
    """SageMaker stops the attempt's job and says so."""
    name = world.name("a", attempt)
    world.deliver(world.job_event(world.sagemaker.end(name, "Stopped", secondary, reason)))


def test_a_run_goes_on_in_the_plans_second_block_when_that_begins(world: World) -> None:
    began = world.time.now()
    world.cloudformation("Create", run_id="a", job=two_blocks(world))
    uses_up_its_time(world)
    assert "resubmitted when the plan's next block of time begins" in last_message(world)
    world.sweep()
    assert len(world.sagemaker.created) == 1
    assert f"waits until {utc(began + 2 * DAY)}" in world.ask("status", "a")["message"]
    world.time.sleep(began + 2 * DAY - world.time.now())
    world.sweep()
    assert run_seconds(world, 2) == 72_000 - ENDED_BEFORE - AROUND
    uses_up_its_time(world, 2, step=200)
    assert world.run_state("a") == "stopped"
    assert "The training plan's time is over" in last_message(world)
    assert len(world.sagemaker.created) == 2


def test_a_run_that_sagemaker_ends_with_a_block_goes_on_in_the_next(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=two_blocks(world))
    world.time.sleep(36_000 - ENDED_BEFORE)
    world.progress(100)
    ends(world, 1, reason="The training plan has expired")
    world.time.sleep(2 * DAY)
    world.sweep()
    assert len(world.sagemaker.created) == 2


def test_a_failure_at_the_end_of_a_block_is_made_good_in_the_next(world: World) -> None:
    began = world.time.now()
    world.cloudformation("Create", run_id="a", job=two_blocks(world))
    world.time.sleep(36_000 - ENDED_BEFORE - 600)
    world.fails(world.name("a"), "InternalServerError: again", step=100)
    assert len(world.sagemaker.created) == 1
    world.time.sleep(began + 2 * DAY - world.time.now())
    world.sweep()
    assert run_seconds(world, 2) == 72_000 - ENDED_BEFORE - AROUND


def test_a_plan_that_gives_no_answer_when_a_block_ends_is_asked_again(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=two_blocks(world))
    world.gate.fail("describe_training_plan", error("AccessDeniedException", "not yet"))
    with pytest.raises(ClientError, match="not yet"):
        uses_up_its_time(world)
    world.sweep()
    assert "resubmitted when the plan's next block of time begins" in last_message(world)


def test_a_run_that_was_stopped_does_not_wait_for_the_next_block(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=two_blocks(world))
    uses_up_its_time(world)
    world.ask("stop", "a")
    world.time.sleep(3 * DAY)
    world.sweep()
    assert len(world.sagemaker.created) == 1
    assert world.run_state("a") == "stopped"


def test_a_run_that_reached_its_own_limit_under_a_plan_ends(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=under_plan(world))
    uses_up_its_time(world)
    assert "reached max_runtime" in last_message(world)
    assert len(world.sagemaker.created) == 1

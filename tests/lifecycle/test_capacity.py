"""Attempts that got no capacity: the next one waits, longer each time, within a bound."""

from __future__ import annotations

import itertools

import pytest

from cdk_blackwell.lifecycle.handler.clock import utc
from cdk_blackwell.lifecycle.handler.records import Cause
from cdk_blackwell.lifecycle.handler.resume import (
    CAPACITY_PAUSE_SECONDS,
    capacity_row,
    pause_seconds,
)
from tests.lifecycle.test_job_events import sweep_for
from tests.lifecycle.world import World, definition

NONE_LEFT = "CapacityError: none left"


@pytest.fixture
def running(world: World) -> World:
    world.cloudformation("Create", run_id="a", job=definition(maximum_attempts=50))
    return world


@pytest.mark.parametrize(
    ("causes", "row", "minutes"),
    [
        ([], 0, 0),
        (["internal"], 0, 0),
        (["capacity"], 1, 5),
        (["internal", "capacity", "capacity"], 2, 10),
        (["capacity", "internal"], 0, 0),
        (["capacity", "internal", "capacity"], 1, 5),
        (["capacity"] * 9, 9, 60),
    ],
)
def test_only_attempts_in_a_row_count(causes: list[Cause], row: int, minutes: float) -> None:
    assert (capacity_row(causes), pause_seconds(causes) / 60) == (row, minutes)


def test_pauses_only_grow() -> None:
    assert all(one < two for one, two in itertools.pairwise(CAPACITY_PAUSE_SECONDS))


def test_the_next_attempt_waits_and_people_are_told_until_when(running: World) -> None:
    running.fails(running.name("a"), NONE_LEFT, trained=False)
    assert running.sagemaker.created == [running.name("a")]
    assert running.subjects()[1:] == ["pretrain a: waits to be resubmitted"]
    assert "resubmitted after 5 minutes as attempt 2" in running.sns.messages[-1]["Message"]
    due = utc(running.time.now() + 300)
    assert f"waits until {due}" in running.ask("status", "a")["message"]
    running.time.sleep(299)
    running.sweep()
    assert running.sagemaker.created == [running.name("a")], "not before it is due"
    running.time.sleep(1)
    running.sweep()
    assert running.sagemaker.created == [running.name("a"), running.name("a", 2)]
    running.fails(running.name("a", 2), NONE_LEFT, trained=False)
    sweep_for(running, 300)
    assert len(running.sagemaker.created) == 2, "longer each time"
    sweep_for(running, 300)
    assert len(running.sagemaker.created) == 3


def test_capacity_that_does_not_come_in_the_longest_pending_time_ends_the_run(
    running: World,
) -> None:
    begun = running.time.now()
    for attempt in range(1, 50):
        running.fails(running.name("a", attempt), NONE_LEFT, trained=False)
        if running.run_state("a") == "failed":
            break
        sweep_for(running, pause_seconds(["capacity"] * attempt))
    assert running.run_state("a") == "failed"
    assert 7_200 <= running.time.now() - begun <= 7_200 + 3_600
    assert "waits for capacity for at most 2" in running.sns.messages[-1]["Message"]
    assert running.sagemaker.alive() == []


def test_attempts_without_capacity_leave_those_meant_for_failures(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=definition(maximum_attempts=2))
    for attempt in (1, 2, 3):
        world.fails(world.name("a", attempt), NONE_LEFT, trained=False)
        sweep_for(world, pause_seconds(["capacity"] * attempt))
    world.fails(world.name("a", 4), "InternalServerError")
    assert "as attempt 5 and" in world.sns.messages[-1]["Message"]
    assert world.sagemaker.alive() == [world.name("a", 5)]
    world.fails(world.name("a", 5), "InternalServerError", trained=False)
    assert "All 2 attempts are used" in world.sns.messages[-1]["Message"]
    assert world.run_state("a") == "failed"
    assert world.sagemaker.alive() == []


@pytest.mark.parametrize("how", ["stop", "delete"])
def test_a_pause_ends_at_once_when_the_run_does(running: World, how: str) -> None:
    running.fails(running.name("a"), NONE_LEFT, trained=False)
    begun = running.time.now()
    if how == "stop":
        assert running.ask("stop", "a")["state"] == "stopped"
    else:
        assert running.cloudformation("Delete")["Status"] == "SUCCESS"
    assert running.time.now() - begun < 60
    sweep_for(running, 900)
    assert running.sagemaker.created == [running.name("a")]
    assert running.run_state("a") == "stopped"

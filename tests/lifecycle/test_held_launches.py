"""A launch held up at any of its calls for as long as Lambda lets it live, beside a stack delete.

When the delete is answered, table, rules and function go with the stack, so nobody would ever stop
what the launch creates after that: the delete must not be answered before the launch is over.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cdk_blackwell.lifecycle.handler import claims, launch, stopping
from tests.lifecycle.scenery import Broken
from tests.lifecycle.schedules import SCENES, Stage
from tests.lifecycle.test_state_machine import silence

LAUNCHES = ("start", "job fails")
"""Scenes whose main event launches an attempt: the first, and one that follows."""


def hold_at(scene: str, number: int) -> bool:
    """Hold the scene's launch at its ``number``-th call; whether it has so many."""
    stage = Stage()
    world = stage.world
    world.goes_with_its_stack = True
    SCENES[scene].prepare(stage)
    before = world.faults.total()
    SCENES[scene].main(stage, ((number, "stall"),))
    stage.delete()
    held, delete = world.queue[-2:]
    delete.due += 0.5
    world.queue.remove(held)
    world.invoke(held)
    met = world.faults.total() > before
    world.let_pass(2 * 3_600.0)
    world.check_answers()
    stage.stack.follow()
    assert stage.stack.state == "absent", "the stack is deleted"
    world.check_gone("Delete, for good")
    return met


def hold_everywhere(scene: str) -> int:
    """Hold it at every call; how many it has."""
    number = 0
    with silence():
        while hold_at(scene, number):
            number += 1
    return number


@pytest.mark.parametrize("scene", LAUNCHES)
def test_a_launch_held_up_anywhere_leaves_no_job_behind_a_deleted_stack(scene: str) -> None:
    assert hold_everywhere(scene) > 15


def trust_that_it_was_abandoned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The rule the controller once had: a claim without a job is at its end after five minutes."""
    monkeypatch.setattr(stopping, "may_come", claims.in_progress)


def and_leave_what_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A first launch needs no table to stop its job when it fails, which alone would save it."""
    trust_that_it_was_abandoned(monkeypatch)
    monkeypatch.setattr(launch, "_abandon", lambda services, attempt, requester: None)


@pytest.mark.parametrize(
    ("scene", "plant"),
    [("job fails", trust_that_it_was_abandoned), ("start", and_leave_what_failed)],
)
def test_a_delete_that_does_not_wait_for_it_is_caught(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], scene: str
) -> None:
    plant(monkeypatch)
    with pytest.raises(Broken, match="nothing left"):
        hold_everywhere(scene)

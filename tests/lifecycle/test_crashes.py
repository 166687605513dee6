"""The function may be gone at any AWS call, before or after its effect. Lambda then repeats the
event, the sweep comes every five minutes, and in the end there is one job and one answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.lifecycle.fakes import Crash, When, error
from tests.lifecycle.world import World

NewWorld = Callable[[], AbstractContextManager[World]]
INTERNAL = "InternalServerError: We encountered an internal error."


def sweep_crashes(
    new_world: NewWorld,
    *,
    prepare: Callable[[World], dict[str, object]],
    when: When,
    check: Callable[[World, int], None],
    first: int = 0,
    stride: int = 1,
) -> int:
    """Crash the event that ``prepare`` gives at its calls ``first``, ``first + stride``, ...

    Gives the first of these numbers that there is no call for.
    """
    index = first
    while True:
        with new_world() as world:
            event = prepare(world)
            world.gate.crash_at = (len(world.gate.calls) + index, when)
            try:
                world.deliver(event, invocation="same")
            except Crash:
                crashed = True
            else:
                crashed = False
            world.gate.crash_at = None
            if crashed:
                world.time.sleep(60)
                world.deliver(event, invocation="same")
            world.run_continuations()
            check(world, index)
            if not crashed:
                return index
        index += stride


EVERY_CALL = pytest.mark.parametrize(
    ("when", "first", "stride"),
    [
        # A few calls always, all of them in the slow tests.
        pytest.param("before", 3, 6, id="before some calls"),
        pytest.param("after", 0, 6, id="after some calls"),
        pytest.param(
            "before", 0, 1, id="before every call", marks=[pytest.mark.slow, pytest.mark.long]
        ),
        pytest.param(
            "after", 0, 1, id="after every call", marks=[pytest.mark.slow, pytest.mark.long]
        ),
    ],
)


@EVERY_CALL
def test_create_makes_one_job_and_gives_one_answer(
    new_world: NewWorld, when: When, first: int, stride: int
) -> None:
    def check(world: World, index: int) -> None:
        assert world.sagemaker.created == [world.name("a")], index
        assert world.sagemaker.alive() == [world.name("a")], index
        statuses = {answer["Status"] for answer in world.answers}
        assert statuses == {"SUCCESS"}, (index, world.answers)
        # CloudFormation ignores a second answer, which only a crash between sending and
        # recording can cause.
        assert len(world.answers) <= 2, index
        assert "pretrain a: launched" in world.subjects(), index

    calls = sweep_crashes(
        new_world,
        prepare=lambda world: world.event("Create", run_id="a"),
        when=when,
        check=check,
        first=first,
        stride=stride,
    )
    assert calls > 15


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_update_never_leaves_two_jobs(new_world: NewWorld, when: When) -> None:
    def prepare(world: World) -> dict[str, object]:
        world.cloudformation("Create", run_id="a")
        world.sagemaker.STOP_SECONDS = 1.0
        return world.event("Update", run_id="b", old_run_id="a")

    def check(world: World, index: int) -> None:
        assert world.sagemaker.created == [world.name("a"), world.name("b")], index
        assert world.sagemaker.alive() == [world.name("b")], index
        assert {answer["Status"] for answer in world.answers} == {"SUCCESS"}, index

    sweep_crashes(new_world, prepare=prepare, when=when, check=check)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_delete_leaves_no_job(new_world: NewWorld, when: When) -> None:
    def prepare(world: World) -> dict[str, object]:
        world.cloudformation("Create", run_id="a")
        world.sagemaker.STOP_SECONDS = 1.0
        return world.event("Delete")

    def check(world: World, index: int) -> None:
        assert world.sagemaker.holding() == [], index
        assert {answer["Status"] for answer in world.answers} == {"SUCCESS"}, index

    sweep_crashes(new_world, prepare=prepare, when=when, check=check)


@EVERY_CALL
def test_a_failed_attempt_is_resubmitted_once(
    new_world: NewWorld, when: When, first: int, stride: int
) -> None:
    def prepare(world: World) -> dict[str, object]:
        world.cloudformation("Create", run_id="a")
        world.progress(100)
        detail = world.sagemaker.end(world.name("a"), "Failed", reason=INTERNAL)
        return world.job_event(detail)

    def check(world: World, index: int) -> None:
        assert world.sagemaker.created == [world.name("a"), world.name("a", 2)], index
        assert world.run_state("a") == "running", index

    sweep_crashes(new_world, prepare=prepare, when=when, check=check, first=first, stride=stride)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_event_that_is_never_repeated_is_made_good_by_the_sweep(
    new_world: NewWorld, when: When
) -> None:
    index, crashed = 0, True
    while crashed:
        with new_world() as world:
            world.cloudformation("Create", run_id="a")
            world.progress(100)
            detail = world.sagemaker.end(world.name("a"), "Failed", reason=INTERNAL)
            world.gate.crash_at = (len(world.gate.calls) + index, when)
            try:
                world.deliver(world.job_event(detail))
                crashed = False
            except Crash:
                world.gate.crash_at = None
                for _ in range(3):
                    world.time.sleep(300)
                    world.sweep()
            assert world.sagemaker.created == [world.name("a"), world.name("a", 2)], index
            assert world.sagemaker.alive() == [world.name("a", 2)], index
        index += 1
    assert index > 10


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_resubmission_that_waits_survives_every_crash(new_world: NewWorld, when: When) -> None:
    index, crashed = 0, True
    while crashed:
        with new_world() as world:
            world.cloudformation("Create", run_id="a")
            world.sagemaker.refuses = error("ResourceLimitExceeded", "in use")
            world.fails(world.name("a"), INTERNAL, step=100)
            world.sagemaker.refuses = None
            world.time.sleep(300)
            world.gate.crash_at = (len(world.gate.calls) + index, when)
            try:
                world.sweep()
                crashed = False
            except Crash:
                pass
            world.gate.crash_at = None
            for _ in range(3):
                world.time.sleep(300)
                world.sweep()
            assert world.sagemaker.created == [world.name("a"), world.name("a", 2)], index
            assert world.sagemaker.alive() == [world.name("a", 2)], index
            assert world.cloudformation("Delete")["Status"] == "SUCCESS", index
            assert world.sagemaker.holding() == [], index
        index += 1
    assert index > 5


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_create_that_dies_for_good_leaves_nothing_once_the_stack_is_deleted(
    new_world: NewWorld, when: When
) -> None:
    index, crashed = 0, True
    while crashed:
        with new_world() as world:
            world.gate.crash_at = (index, when)
            try:
                world.deliver(world.event("Create", run_id="a"))
                crashed = False
            except Crash:
                pass
            world.gate.crash_at = None
            world.time.sleep(3600)
            assert world.cloudformation("Delete")["Status"] == "SUCCESS", index
            world.sweep()
            assert world.sagemaker.holding() == [], index
        index += 1


def test_a_completed_run_whose_event_was_lost_half_way_is_finished_once(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    detail = world.sagemaker.end(world.name("a"), "Completed")
    world.gate.fail("update_item", RuntimeError("gone"), when="after")
    with pytest.raises(RuntimeError):
        world.deliver(world.job_event(detail))
    world.sweep()
    world.sweep()
    assert world.run_state("a") == "completed"
    assert world.subjects().count("pretrain a: completed") == 1

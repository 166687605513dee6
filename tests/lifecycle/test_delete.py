"""Delete: whatever the run is doing, nothing is alive when it answers SUCCESS."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cdk_blackwell.lifecycle.handler.cloudformation import DEADLINE_SECONDS, HOP
from cdk_blackwell.lifecycle.handler.permissions import FUNCTION_TIMEOUT_SECONDS
from cdk_blackwell.lifecycle.handler.request import render_request
from tests.lifecycle.fakes import GROUP, SHARED_GROUP, STACK, Crash, error
from tests.lifecycle.world import World, definition


def _nothing(world: World) -> None:
    world.cloudformation("Create")


def _training(world: World) -> None:
    world.cloudformation("Create", run_id="a")


def _by_hand(world: World) -> None:
    world.cloudformation("Create")
    world.ask("start", "hand")


def _stopping(world: World) -> None:
    _training(world)
    world.ask("stop", "a")


def _failed_unrecorded(world: World) -> None:
    _training(world)
    world.sagemaker.end(world.name("a"), "Failed", reason="InternalServerError")


def _resubmitted(world: World) -> None:
    _training(world)
    world.fails(world.name("a"), "InternalServerError", step=10)


def _completed(world: World) -> None:
    _training(world)
    world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))


def _refused(world: World) -> None:
    world.gate.fail("create_training_job", error("ValidationException", "no"))
    assert world.cloudformation("Create", run_id="a")["Status"] == "FAILED"


def _never_answered(world: World) -> None:
    """No Create ever reached us."""


PHASES = [
    _nothing,
    _training,
    _by_hand,
    _stopping,
    _failed_unrecorded,
    _resubmitted,
    _completed,
    _refused,
    _never_answered,
]


@pytest.mark.parametrize("phase", PHASES, ids=lambda phase: phase.__name__.strip("_"))
def test_leaves_no_job_in_any_phase(world: World, phase: Callable[[World], None]) -> None:
    phase(world)
    answer = world.cloudformation("Delete")
    assert answer["Status"] == "SUCCESS"
    assert world.sagemaker.holding() == []
    assert all(attempt.settled for attempt in world.quiet.store.attempts())
    created = list(world.sagemaker.created)
    for job in created:
        world.deliver(world.job_event(world.sagemaker.detail(job)))
    world.sweep()
    assert world.sagemaker.created == created, "no event launches anything after the tombstone"
    assert world.ask("start", "late")["state"] == "refused"


def test_writes_the_tombstone_before_it_stops_anything(world: World) -> None:
    _training(world)
    seen: list[str] = []
    world.gate.hooks["stop_training_job"] = lambda: seen.append(world.owner().desired)
    world.cloudformation("Delete")
    assert seen == ["deleted"]


def test_tells_that_the_run_was_stopped(world: World) -> None:
    _training(world)
    world.cloudformation("Delete")
    assert world.subjects() == ["pretrain a: launched", "pretrain a: stopped"]


@pytest.mark.usefixtures("coarse")
def test_waits_for_the_job_and_then_for_the_interfaces_of_its_own_group(world: World) -> None:
    _training(world)
    begun = world.time.now()
    world.ec2.interfaces = {
        "eni-own": (GROUP, begun + 900),
        "eni-shared": (SHARED_GROUP, begun + 1e9),
    }
    answer = world.cloudformation("Delete")
    assert answer["Status"] == "SUCCESS"
    assert 900 <= world.time.now() - begun <= 960


@pytest.mark.usefixtures("coarse")
@pytest.mark.parametrize("mark", ["ENI of training job {name}", "arn:x:training-job/{name}/algo-1"])
def test_waits_in_a_shared_group_for_the_interfaces_of_its_own_runs_alone(
    world: World, mark: str
) -> None:
    _training(world)
    begun = world.time.now()
    world.ec2.interfaces = {
        "eni-own": (SHARED_GROUP, begun + 900),
        "eni-other-job": (SHARED_GROUP, begun + 1e9),
        "eni-longer-name": (SHARED_GROUP, begun + 1e9),
        "eni-unmarked": (SHARED_GROUP, begun + 1e9),
    }
    world.ec2.descriptions = {
        "eni-own": mark.format(name=world.name("a")),
        "eni-other-job": mark.format(name="somebody-else-1"),
        "eni-longer-name": mark.format(name=world.name("a") + "0"),
    }
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert 900 <= world.time.now() - begun <= 960


@pytest.mark.usefixtures("coarse")
def test_goes_on_in_new_invocations_before_the_functions_time_is_up(world: World) -> None:
    _training(world)
    world.ec2.interfaces = {"eni-own": (GROUP, world.time.now() + 2400)}
    world.deliver(world.event("Delete"), seconds=900)
    assert world.answers[1:] == []
    assert [event[HOP]["hop"] for event in world.functions.events] == [1]
    hops = world.run_continuations()
    assert hops == 3
    assert [answer["Status"] for answer in world.answers[1:]] == ["SUCCESS"]


@pytest.mark.usefixtures("coarse")
def test_a_continuation_delivered_twice_is_one(world: World) -> None:
    _training(world)
    world.ec2.interfaces = {"eni-own": (GROUP, world.time.now() + 1200)}
    world.deliver(world.event("Delete"))
    (hop,) = world.functions.events
    world.functions.events.append(hop)
    world.run_continuations()
    assert len(world.answers) == 2


@pytest.mark.usefixtures("coarse")
def test_answers_failed_with_the_jobs_name_at_55_minutes_at_the_latest(world: World) -> None:
    world.sagemaker.STOP_SECONDS = 1e9
    _training(world)
    begun = world.time.now()
    answer = world.cloudformation("Delete")
    assert answer["Status"] == "FAILED"
    assert world.name("a") in answer["Reason"]
    assert DEADLINE_SECONDS - 120 < world.time.now() - begun <= 55 * 60


@pytest.mark.usefixtures("coarse")
def test_names_the_interfaces_that_do_not_go(world: World) -> None:
    _training(world)
    world.ec2.interfaces = {"eni-own": (GROUP, 1e12)}
    answer = world.cloudformation("Delete")
    assert answer["Status"] == "FAILED"
    assert "eni-own" in answer["Reason"]
    assert world.name("a") in answer["Reason"]


@pytest.mark.usefixtures("coarse")
def test_a_second_delete_goes_on_where_the_first_gave_up(world: World) -> None:
    world.sagemaker.STOP_SECONDS = 70 * 60
    _training(world)
    assert world.cloudformation("Delete")["Status"] == "FAILED"
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.sagemaker.holding() == []


def test_waits_for_a_launch_that_is_under_way(world: World) -> None:
    """The other invocation has its claim and will call CreateTrainingJob in a moment."""
    world.cloudformation("Create")
    world.claim(by="another invocation")
    request = render_request(definition(), stack_id=STACK, run_id="a", attempt=1)
    calls = 0

    def appear() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            world.sagemaker.create_training_job(**request)
        else:
            world.gate.hooks["describe_training_job"] = appear

    world.gate.hooks["describe_training_job"] = appear
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.sagemaker.created == [world.name("a")]
    assert world.sagemaker.holding() == []


def test_a_claim_whose_launch_never_came_holds_the_delete_while_its_holder_can_live(
    world: World,
) -> None:
    world.cloudformation("Create")
    world.claim(by="a crashed invocation")
    begun = world.time.now()
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert FUNCTION_TIMEOUT_SECONDS < world.time.now() - begun < FUNCTION_TIMEOUT_SECONDS + 120


def test_one_job_that_cannot_be_stopped_does_not_keep_the_others_alive(world: World) -> None:
    _training(world)
    second = render_request(definition(), stack_id=STACK, run_id="b", attempt=1)
    owner = world.owner()
    world.quiet.store.stop_run(owner.owner, "a")
    world.claim("b", by="x")
    world.sagemaker.create_training_job(**second)
    world.gate.fail("stop_training_job", RuntimeError("broken"))
    assert world.cloudformation("Delete")["Status"] == "FAILED"
    assert world.sagemaker.alive() == [world.name("a")]
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.sagemaker.holding() == []


def test_a_job_that_ends_while_it_is_being_stopped_is_no_error(world: World) -> None:
    _training(world)
    world.gate.hooks["stop_training_job"] = lambda: world.sagemaker.end(
        world.name("a"), "Completed"
    )
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.run_state("a") == "completed"


def test_the_id_cloudformation_made_up_for_an_unanswered_create_is_echoed(world: World) -> None:
    event = world.event("Delete")
    event["PhysicalResourceId"] = "SmallModelStack-PretrainRun-1ABC"
    world.deliver(event)
    assert world.answers[0]["Status"] == "SUCCESS"
    assert world.answers[0]["PhysicalResourceId"] == "SmallModelStack-PretrainRun-1ABC"


def test_a_create_that_comes_again_from_lambda_after_the_tombstone_launches_nothing(
    world: World,
) -> None:
    create = world.event("Create", run_id="a")
    world.gate.crash_at = (0, "after")
    with pytest.raises(Crash):
        world.deliver(create, invocation="same")
    world.gate.crash_at = None
    world.time.sleep(60)
    world.cloudformation("Delete")
    world.deliver(create, invocation="same")
    assert world.answers[-1]["Status"] == "FAILED"
    assert world.sagemaker.created == []


def test_the_same_resource_can_be_created_again_later(world: World) -> None:
    _training(world)
    world.cloudformation("Delete")
    world.time.sleep(60)
    assert world.cloudformation("Create", run_id="b")["Status"] == "SUCCESS"
    assert world.sagemaker.alive() == [world.name("b")]
    world.time.sleep(60)
    used = world.cloudformation("Update", run_id="a", old_run_id="b")
    assert "already used" in used["Reason"]


def test_a_run_frozen_by_another_version_is_stopped_and_deleted_all_the_same(world: World) -> None:
    _training(world)
    world.quiet.table.update(
        "run",
        f"{world.owner().owner}#a",
        "SET job_definition = :d",
        {":d": '{"schema_version": 99}'},
    )
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.sagemaker.holding() == []

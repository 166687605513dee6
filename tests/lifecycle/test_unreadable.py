"""A definition that another version froze ends its run in words; it never leaves it unattended."""

from __future__ import annotations

import pytest

from tests.lifecycle.fakes import TABLE, error
from tests.lifecycle.world import World

INTERNAL = "InternalServerError: We encountered an internal error."
FROZEN_ELSEWHERE = '{"schema_version": 99}'


@pytest.fixture
def unreadable(world: World) -> World:
    world.cloudformation("Create", run_id="a")
    world.progress(100)
    freeze_elsewhere(world)
    return world


def freeze_elsewhere(world: World) -> None:
    world.quiet.table.update(
        "run",
        f"{world.owner().owner}#a",
        "SET job_definition = :d",
        {":d": FROZEN_ELSEWHERE},
    )


def test_a_failed_attempt_is_not_resubmitted_and_people_are_told_why(unreadable: World) -> None:
    unreadable.fails(unreadable.name("a"), INTERNAL)
    assert unreadable.sagemaker.created == [unreadable.name("a")]
    assert unreadable.run_state("a") == "failed"
    assert not unreadable.owner().wants("a")
    attempt = unreadable.attempt("a")
    assert attempt is not None
    assert (attempt.action, attempt.settled) == ("stop", True)
    assert unreadable.subjects()[1:] == ["pretrain a: failed"]
    message = unreadable.sns.messages[-1]["Message"]
    assert "frozen by another version of cdk-blackwell" in message
    assert "schema_version" in message
    assert INTERNAL in message


def test_a_completed_run_is_completed_all_the_same(unreadable: World) -> None:
    detail = unreadable.sagemaker.end(unreadable.name("a"), "Completed")
    unreadable.deliver(unreadable.job_event(detail))
    assert unreadable.run_state("a") == "completed"
    assert unreadable.subjects()[1:] == ["pretrain a: completed"]


def test_the_sweep_ends_it_too_when_the_event_never_came(unreadable: World) -> None:
    unreadable.sagemaker.end(unreadable.name("a"), "Failed", reason=INTERNAL)
    unreadable.sweep()
    unreadable.sweep()
    assert unreadable.run_state("a") == "failed"
    assert unreadable.subjects()[1:] == ["pretrain a: failed"]


def test_a_resubmission_that_waits_while_the_library_changes_ends(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.sagemaker.refuses = error("ResourceLimitExceeded", "in use")
    world.fails(world.name("a"), INTERNAL, step=100)
    freeze_elsewhere(world)
    world.sagemaker.refuses = None
    world.time.sleep(300)
    world.sweep()
    world.sweep()
    assert world.sagemaker.created == [world.name("a")]
    assert world.run_state("a") == "failed"
    assert "frozen by another version" in world.sns.messages[-1]["Message"]
    assert world.ask("start", "b")["state"] == "starting", "the next run may start"


def test_an_end_decided_before_the_library_changed_ends_the_run(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.gate.fail("transact_write_items", RuntimeError("gone"))
    with pytest.raises(RuntimeError):
        world.fails(world.name("a"), INTERNAL, step=100)
    freeze_elsewhere(world)
    world.sweep()
    world.sweep()
    assert world.sagemaker.created == [world.name("a")]
    assert world.run_state("a") == "failed"
    assert all(attempt.settled for attempt in world.quiet.store.attempts())


def test_status_still_tells_what_is_known(unreadable: World) -> None:
    answer = unreadable.ask("status", "a")
    assert answer["state"] == "running"
    assert answer["job_name"] == unreadable.name("a")
    assert "frozen by another version" in answer["message"]
    assert unreadable.ask("stop", "a")["state"] == "stopping"


# --- Items of the table --------------------------------------------------------------------------


def damage(world: World, run_id: str, attribute: str) -> None:
    """The claim's item loses it."""
    world.dynamodb.update_item(
        TableName=TABLE,
        Key={"pk": {"S": "attempt"}, "sk": {"S": world.name(run_id)}},
        UpdateExpression="REMOVE #lost",
        ExpressionAttributeNames={"#lost": attribute},
    )


@pytest.mark.parametrize("attribute", ["owner", "run_id", "attempt", "held_until", "stack_id"])
def test_a_damaged_claim_is_named_and_a_delete_does_not_pass_over_it(
    world: World, attribute: str
) -> None:
    world.cloudformation("Create", run_id="a")
    damage(world, "a", attribute)
    answer = world.cloudformation("Delete")
    assert answer["Status"] == "FAILED", "its job may be alive"
    assert world.name("a") in answer["Reason"]
    assert "stop the training job" in answer["Reason"]
    assert world.ask("stop", "a")["state"] == "refused"


def test_a_damaged_claim_of_old_keeps_nobody_from_the_run_that_is_on(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))
    assert world.ask("start", "b")["state"] == "starting"
    damage(world, "a", "stack_id")
    world.fails(world.name("b"), INTERNAL, step=100)
    assert world.sagemaker.alive() == [world.name("b", 2)], "it is resubmitted"
    assert world.ask("status", "b")["state"] == "running"
    assert world.ask("stop", "b")["state"] == "stopping"
    assert world.sagemaker.alive() == []


def test_a_damaged_claim_of_old_keeps_no_deploy_from_recording_a_definition(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))
    damage(world, "a", "stack_id")
    answer = world.cloudformation("Update", run_id="a", old_run_id="a")
    assert answer["Status"] == "SUCCESS"


def test_a_delete_stops_what_it_can_read_before_it_fails(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))
    world.ask("start", "b")
    damage(world, "a", "stack_id")
    assert world.cloudformation("Delete")["Status"] == "FAILED"
    assert world.sagemaker.alive() == []


def test_a_damaged_claim_of_old_does_not_leave_the_running_job_unattended(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))
    world.ask("start", "b")
    world.quiet.store.stop_run(world.owner().owner, "b")
    damage(world, "a", "owner")
    with pytest.raises(ValueError, match=world.name("a")):
        world.sweep()
    assert world.sagemaker.alive() == []


def test_what_a_newer_version_added_is_passed_over(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.dynamodb.update_item(
        TableName=TABLE,
        Key={"pk": {"S": "attempt"}, "sk": {"S": world.name("a")}},
        UpdateExpression="SET new_thing = :x",
        ExpressionAttributeValues={":x": {"S": "of tomorrow"}},
    )
    world.sweep()
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.sagemaker.holding() == []

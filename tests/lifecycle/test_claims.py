"""A resubmission that SageMaker does not take yet waits, in bounds, and leaves nothing behind."""

from __future__ import annotations

import pytest

from cdk_blackwell.lifecycle.handler.claims import CLAIM_GRACE_SECONDS
from cdk_blackwell.lifecycle.handler.launch import PENDING_SECONDS
from cdk_blackwell.lifecycle.handler.stopping import stop_attempts
from tests.lifecycle.fakes import error
from tests.lifecycle.world import World, definition

INTERNAL = "InternalServerError: We encountered an internal error."
BUSY = error("ResourceLimitExceeded", "The account-level service limit is 1 Instances.")
WAITS, FAILED = "pretrain a: waits to be resubmitted", "pretrain a: failed"


def keep_waiting(world: World, seconds: float) -> None:
    """The sweep comes every five minutes for so long."""
    until = world.time.now() + seconds
    while world.time.now() < until:
        world.time.sleep(300)
        world.sweep()


@pytest.fixture
def waiting(world: World) -> World:
    """The first attempt failed, and the quota is not free for the second."""
    world.cloudformation("Create", run_id="a")
    world.sagemaker.refuses = BUSY
    world.fails(world.name("a"), INTERNAL, step=100)
    return world


@pytest.mark.parametrize(
    "refusal",
    [
        BUSY,
        error("ThrottlingException", "Rate exceeded"),
        error("AccessDeniedException", "not authorized to perform sagemaker:CreateTrainingJob"),
        error("ValidationException", "Could not assume role arn:aws:iam::123456789012:role/x"),
    ],
    ids=["quota", "throttled", "permission not seen yet", "role not seen yet"],
)
def test_a_refusal_that_passes_is_waited_out_and_told_once(world: World, refusal: object) -> None:
    world.cloudformation("Create", run_id="a")
    world.sagemaker.refuses = refusal  # type: ignore[assignment]
    world.fails(world.name("a"), INTERNAL, step=100)
    keep_waiting(world, 900)
    assert world.run_state("a") == "running"
    assert world.sagemaker.created == [world.name("a")]
    assert world.subjects()[1:] == [WAITS]
    world.sagemaker.refuses = None
    keep_waiting(world, 300)
    assert world.sagemaker.alive() == [world.name("a", 2)]
    assert world.subjects()[1:] == [WAITS, "pretrain a: resubmitted"]


def test_people_are_told_why_it_waits_for_how_long_and_how_to_end_it(waiting: World) -> None:
    text = waiting.sns.messages[-1]["Message"]
    assert "service limit is 1 Instances" in text
    assert "for up to 2 hours" in text
    assert '{"action": "stop", "run_id": "a"}' in text
    assert INTERNAL in text, "why the attempt before it ended"
    answer = waiting.ask("status", "a")
    assert answer["state"] == "running"
    assert "service limit is 1 Instances" in answer["message"]


def test_the_wait_is_bounded_by_the_longest_pending_time(waiting: World) -> None:
    waiting.time.sleep(6_000)
    keep_waiting(waiting, 600)
    assert waiting.run_state("a") == "running"
    keep_waiting(waiting, 900)
    assert waiting.run_state("a") == "failed"
    assert waiting.subjects()[1:] == [WAITS, FAILED]
    assert "for 2 hours. The run ends here" in waiting.sns.messages[-1]["Message"]
    waiting.sagemaker.refuses = None
    keep_waiting(waiting, 600)
    assert waiting.sagemaker.created == [waiting.name("a")]
    assert waiting.attempt("a", 2) is None
    assert waiting.ask("start", "b")["state"] == "starting", "the next run may start"


def test_without_a_longest_pending_time_it_waits_twelve_hours(world: World) -> None:
    request = {**definition().request, "StoppingCondition": {"MaxRuntimeInSeconds": 86_400}}
    world.cloudformation("Create", run_id="a", job=definition(request=request))
    world.sagemaker.refuses = BUSY
    world.fails(world.name("a"), INTERNAL, step=100)
    assert "for up to 12 hours" in world.sns.messages[-1]["Message"]
    world.time.sleep(PENDING_SECONDS - 600)
    world.sweep()
    assert world.run_state("a") == "running"
    world.time.sleep(600)
    world.sweep()
    assert world.run_state("a") == "failed"


def test_a_job_taken_after_a_long_wait_is_not_missed_while_it_is_young(waiting: World) -> None:
    waiting.time.sleep(3_600)
    waiting.sagemaker.refuses = None
    keep_waiting(waiting, 300)
    waiting.gate.fail("describe_training_job", error("ValidationException", "not found"))
    waiting.sweep()
    assert waiting.run_state("a") == "running"
    assert waiting.sagemaker.alive() == [waiting.name("a", 2)]


@pytest.mark.parametrize("how", ["stop", "delete", "new run"])
def test_whatever_ends_the_wait_ends_it_at_once_and_for_good(waiting: World, how: str) -> None:
    before = waiting.time.now()
    if how == "stop":
        assert waiting.ask("stop", "a")["state"] == "stopped"
    elif how == "delete":
        assert waiting.cloudformation("Delete")["Status"] == "SUCCESS"
    else:
        waiting.gate.hooks["create_training_job"] = lambda: setattr(
            waiting.sagemaker, "refuses", None
        )
        answer = waiting.cloudformation("Update", run_id="b", old_run_id="a")
        assert answer["Status"] == "SUCCESS"
    assert waiting.time.now() - before < 60
    waiting.sagemaker.refuses = None
    keep_waiting(waiting, 900)
    assert waiting.name("a", 2) not in waiting.sagemaker.created
    second = waiting.attempt("a", 2)
    assert second is not None
    assert (second.settled, second.cause) == (True, "stopped_by_us")
    assert waiting.run_state("a") == "stopped"


def test_a_delete_just_before_the_claim_is_taken_up_wins(waiting: World) -> None:
    waiting.sagemaker.refuses = None
    owner = waiting.owner()
    waiting.time.sleep(300)
    waiting.gate.hooks["update_item"] = lambda: waiting.quiet.store.bury(
        owner.owner, stack_id=owner.stack_id
    )
    waiting.sweep()
    assert waiting.sagemaker.created == [waiting.name("a")]
    assert all(attempt.settled for attempt in waiting.quiet.store.attempts())


def test_a_delete_while_the_claim_is_taken_up_waits_for_what_comes_of_it(waiting: World) -> None:
    waiting.sagemaker.refuses = None
    owner = waiting.owner()
    seen: list[tuple[str, ...]] = []

    def delete() -> None:
        waiting.quiet.store.bury(owner.owner, stack_id=owner.stack_id)
        seen.append(stop_attempts(waiting.quiet, waiting.quiet.store.attempts()))

    waiting.time.sleep(300)
    waiting.gate.hooks["create_training_job"] = delete
    waiting.sweep()
    assert seen == [(waiting.name("a", 2),)], "it is not taken for gone"
    assert waiting.sagemaker.alive() == []
    assert waiting.cloudformation("Delete")["Status"] == "SUCCESS"
    assert waiting.sagemaker.holding() == []


def test_two_sweeps_at_once_take_a_claim_up_once(waiting: World) -> None:
    waiting.time.sleep(300)
    claim = waiting.attempt("a", 2)
    assert claim is not None
    assert waiting.quiet.store.take_up(claim)
    assert not waiting.quiet.store.take_up(claim)


def test_a_claim_taken_up_by_a_sweep_that_died_is_taken_up_again(waiting: World) -> None:
    waiting.time.sleep(300)
    claim = waiting.attempt("a", 2)
    assert claim is not None
    waiting.quiet.store.take_up(claim)
    waiting.sagemaker.refuses = None
    waiting.sweep()
    assert waiting.sagemaker.alive() == [], "somebody may be at it"
    waiting.time.sleep(CLAIM_GRACE_SECONDS)
    waiting.sweep()
    assert waiting.sagemaker.alive() == [waiting.name("a", 2)]


def test_a_first_attempt_does_not_wait_because_somebody_waits_for_the_answer(world: World) -> None:
    world.cloudformation("Create")
    world.sagemaker.refuses = error("ThrottlingException", "Rate exceeded")
    answer = world.ask("start", "a")
    assert answer["state"] == "refused"
    assert "Rate exceeded" in answer["message"]
    world.sagemaker.refuses = None
    keep_waiting(world, 900)
    assert world.sagemaker.created == []

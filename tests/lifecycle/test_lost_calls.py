"""Calls that took effect although they seem refused, and AWS that does not answer for a while."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ReadTimeoutError

from cdk_blackwell.lifecycle.handler.claims import CLAIM_GRACE_SECONDS
from cdk_blackwell.lifecycle.handler.store import HOLD_SECONDS
from tests.lifecycle.fakes import STACK, error
from tests.lifecycle.world import World, definition

LOST = ReadTimeoutError(endpoint_url="https://api.sagemaker")
USED_UP = error("ResourceLimitExceeded", "limit is 1 instances, in use 1")
INTERNAL = "InternalServerError: We encountered an internal error."


@pytest.mark.parametrize(
    "refusal",
    [USED_UP, error("ValidationException", "no"), error("AccessDeniedException", "no")],
    ids=["quota", "validation", "access"],
)
@pytest.mark.parametrize("attempt", [1, 2])
def test_a_refusal_that_answers_the_second_of_two_calls_loses_no_job(
    world: World, refusal: ClientError, attempt: int
) -> None:
    """botocore repeats a call whose answer was lost; the job of the first holds the quota then."""
    if attempt == 1:
        world.gate.fail("create_training_job", *[refusal] * 20, when="after")
        assert world.cloudformation("Create", run_id="a")["Status"] == "SUCCESS"
    else:
        world.cloudformation("Create", run_id="a")
        world.gate.fail("create_training_job", *[refusal] * 20, when="after")
        world.fails(world.name("a"), INTERNAL, step=100)
        world.gate.faults.clear()
        world.sweep()
    world.gate.faults.clear()
    assert world.sagemaker.alive() == [world.name("a", attempt)]
    claim = world.attempt("a", attempt)
    assert claim is not None
    assert claim.state == "submitted"
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.sagemaker.holding() == []


def test_a_job_that_appears_after_a_refusal_that_followed_a_lost_call_is_stopped(
    world: World,
) -> None:
    late: list[Callable[[], Any]] = []
    honest = world.sagemaker.create_training_job

    def slow(**request: Any) -> dict[str, Any]:
        if not late:
            late.append(lambda: honest(**request))
            raise LOST
        raise USED_UP

    world.sagemaker.create_training_job = slow  # type: ignore[method-assign]
    assert world.cloudformation("Create", run_id="a")["Status"] == "FAILED"
    claim = world.attempt("a")
    assert claim is not None, "nobody knows yet, so its claim is kept"
    late[0]()
    world.sweep()
    assert world.sagemaker.alive() == []
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.sagemaker.holding() == []


def test_a_claim_whose_write_was_not_answered_starts_nothing_behind_anyones_back(
    world: World,
) -> None:
    world.cloudformation("Create")
    world.gate.fail("transact_write_items", LOST, when="after")
    with pytest.raises(ReadTimeoutError):
        world.ask("start", "a")
    world.time.sleep(HOLD_SECONDS)
    world.sweep()
    assert world.sagemaker.created == []
    claim = world.attempt("a")
    assert claim is not None
    assert claim.settled


def test_a_start_that_fails_does_not_stop_the_run_of_the_same_id_that_lives(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.gate.fail("transact_write_items", error("InternalServerError", status=500))
    with pytest.raises(ClientError):
        world.ask("start", "a")
    assert world.sagemaker.alive() == [world.name("a")]
    assert world.run_state("a") == "running"
    assert world.owner().wants("a")


@pytest.mark.parametrize(
    "trouble",
    [error("ThrottlingException", "Rate exceeded"), error("InternalFailure", status=500), LOST],
    ids=["throttled", "fault", "no answer"],
)
@pytest.mark.parametrize(
    "operation", ["describe_training_job", "stop_training_job", "describe_network_interfaces"]
)
def test_a_delete_outlasts_minutes_in_which_aws_does_not_answer(
    world: World, operation: str, trouble: Exception
) -> None:
    world.cloudformation("Create", run_id="a")
    begun = world.time.now()
    honest = getattr(world.ec2 if "network" in operation else world.sagemaker, operation)

    def troubled(**arguments: Any) -> Any:
        if world.time.now() - begun < 600:
            raise trouble
        return honest(**arguments)

    setattr(world.ec2 if "network" in operation else world.sagemaker, operation, troubled)
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.sagemaker.holding() == []
    assert 600 <= world.time.now() - begun < 1_200


@pytest.mark.usefixtures("coarse")
def test_a_delete_that_aws_never_answers_says_what_may_run(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.sagemaker.describe_training_job = lambda **_: (_ for _ in ()).throw(LOST)  # type: ignore[method-assign]
    answer = world.cloudformation("Delete")
    assert answer["Status"] == "FAILED"
    assert "may be running" in answer["Reason"]


def test_a_job_that_sagemaker_does_not_show_yet_is_not_taken_for_gone(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    begun = world.time.now()
    job = world.sagemaker.jobs.pop(world.name("a"))
    world.gate.hooks["stop_training_job"] = lambda: None

    def appear() -> None:
        if world.time.now() - begun > CLAIM_GRACE_SECONDS / 2:
            world.sagemaker.jobs[world.name("a")] = job
        else:
            world.gate.hooks["describe_training_job"] = appear

    world.gate.hooks["describe_training_job"] = appear
    assert world.cloudformation("Delete")["Status"] == "SUCCESS"
    assert world.name("a") in world.sagemaker.jobs
    assert world.sagemaker.holding() == []


def test_list_tags_may_be_throttled(world: World) -> None:
    world.gate.fail("create_training_job", LOST, when="after")
    world.gate.fail("list_tags", error("ThrottlingException", "Rate exceeded"))
    assert world.cloudformation("Create", run_id="a")["Status"] == "SUCCESS"
    assert world.sagemaker.alive() == [world.name("a")]


def test_a_warm_pool_is_paid_out_of_the_ceiling_for_every_attempt_that_leaves_one(
    world: World,
) -> None:
    request = definition().request
    resources = {**request["ResourceConfig"], "KeepAlivePeriodInSeconds": 3_600}
    hours, price = 24 + 32 / 60 + 1, 100.0
    job = definition(
        request={**request, "ResourceConfig": resources},
        hourly_price_usd=price,
        max_cost_usd=price * (hours + 10),
    )
    world.cloudformation("Create", run_id="a", job=job)
    world.sagemaker.jobs[world.name("a")]["BillableTimeInSeconds"] = 20 * 3600
    world.fails(world.name("a"), INTERNAL, step=100)
    second = world.sagemaker.jobs[world.name("a", 2)]["Request"]["StoppingCondition"]
    # 35.53 h of money, 20 h billed, an hour kept warm; the next: 32 minutes and an hour on top.
    left = (hours + 10 - 20 - 1) * 3600 - 32 * 60 - 3_600
    assert second["MaxRuntimeInSeconds"] == pytest.approx(left, abs=1)


@pytest.mark.parametrize("topic_is_back", [True, False])
def test_an_end_that_the_topic_does_not_take_is_told_again_but_announced_once(
    world: World, topic_is_back: bool
) -> None:
    world.cloudformation("Create", run_id="a")
    world.gate.fail("publish", *[error("NotFound", "no such topic")] * (3 if topic_is_back else 9))
    world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))
    for _ in range(4):
        world.time.sleep(300)
        world.sweep()
    ends = [kind for kind, _ in world.events.sent if kind == "Training Run Completed"]
    assert len(ends) == 1
    assert world.subjects().count("pretrain a: completed") == int(topic_is_back)
    assert world.run_state("a") == "completed"


def test_foreign_tags_are_told_from_ours_even_after_a_lost_call(world: World) -> None:
    world.sagemaker.create_training_job(
        TrainingJobName=world.name("a"),
        RoleArn="arn:aws:iam::123456789012:role/training",
        OutputDataConfig={"S3OutputPath": "s3://b"},
        ResourceConfig={"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
        StoppingCondition={"MaxRuntimeInSeconds": 60},
        Tags=[{"Key": "cdk-blackwell:stack", "Value": f"{STACK}-other"}],
    )
    world.gate.fail("create_training_job", LOST)
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert "already used" in answer["Reason"]
    assert world.sagemaker.alive() == [world.name("a")], "somebody else's job is let alone"

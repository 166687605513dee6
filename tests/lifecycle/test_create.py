"""Create: a launch, or only a definition; one answer in every case."""

from __future__ import annotations

import json

import pytest
from botocore.exceptions import EndpointConnectionError, ReadTimeoutError

from cdk_blackwell.lifecycle.handler.claims import CLAIM_GRACE_SECONDS
from cdk_blackwell.lifecycle.handler.errors import error_code
from cdk_blackwell.lifecycle.handler.request import render_request, run_spec
from tests.lifecycle.fakes import STACK, error
from tests.lifecycle.world import World, definition

LOST = ReadTimeoutError(endpoint_url="https://api")
THROTTLED = error("ThrottlingException", "Rate exceeded")


def test_with_a_run_id_launches_once_and_returns_when_sagemaker_accepts(world: World) -> None:
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "SUCCESS"
    assert answer["Data"]["JobName"] == world.name("a")
    assert world.sagemaker.created == [world.name("a")]
    request = render_request(definition(), stack_id=STACK, run_id="a", attempt=1)
    assert world.sagemaker.jobs[world.name("a")]["Request"] == request
    assert world.time.slept == 0
    assert world.owner().wants("a")
    assert world.subjects() == ["pretrain a: launched"]
    assert "113.93 USD per hour" in world.sns.messages[0]["Message"]


def test_without_a_run_id_records_the_definition_and_launches_nothing(world: World) -> None:
    answer = world.cloudformation("Create")
    assert answer["Status"] == "SUCCESS"
    assert world.sagemaker.created == []
    assert world.ask("start", "a")["state"] == "starting"


def test_freezes_run_json_and_the_bundle(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    assert world.frozen("run.json") == run_spec(definition(), "a").to_json().encode()
    assert world.frozen("bundle.tar.gz") == b"the bundle"


def test_a_missing_dataset_is_named_and_nothing_is_claimed(world: World) -> None:
    world.s3.delete_object(Bucket="dataset", Key="tokens/manifest.json")
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert "s3://dataset/tokens/manifest.json does not exist" in answer["Reason"]
    assert "prepare_data.py" in answer["Reason"]
    assert world.quiet.store.attempts() == ()


def test_a_missing_bundle_is_named_and_the_run_id_stays_usable(world: World) -> None:
    world.s3.delete_object(Bucket="assets", Key="bundle.tar.gz")
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert "s3://assets/bundle.tar.gz does not exist" in answer["Reason"]
    assert world.frozen("run.json") is None
    world.s3.put_object(Bucket="assets", Key="bundle.tar.gz", Body=b"again")
    assert world.ask("start", "a")["state"] == "starting"


def test_a_field_unknown_to_the_loaded_service_model_is_one_clear_error(world: World) -> None:
    job = definition()
    job.request["ResourceConfig"]["QuantumCount"] = 1
    answer = world.cloudformation("Create", run_id="a", job=job)
    assert answer["Status"] == "FAILED"
    assert (
        "'ResourceConfig.QuantumCount' is unknown to the SageMaker service model"
        in (answer["Reason"])
    )
    assert world.sagemaker.created == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no property 'Definition'"),
        ("{", "Expecting property name"),
        ('{"schema_version": 7}', "schema_version 1"),
        (json.dumps({**definition().to_dict(), "extra": 1}), "unknown key 'extra'"),
    ],
)
def test_a_broken_definition_is_refused(world: World, text: str, words: str) -> None:
    answer = world.cloudformation("Create", run_id="a", text=text)
    assert answer["Status"] == "FAILED"
    assert words in answer["Reason"]


def test_a_bad_run_id_is_refused(world: World) -> None:
    answer = world.cloudformation("Create", run_id="my run")
    assert answer["Status"] == "FAILED"
    assert "letters, digits" in answer["Reason"]


# --- SageMaker's answers -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "trouble",
    [
        THROTTLED,
        error("ValidationException", "Could not assume role arn:aws:iam::1:role/training."),
        error("AccessDeniedException", "not authorized to perform: sagemaker:CreateTrainingJob"),
        error("InternalFailure", status=500),
        EndpointConnectionError(endpoint_url="https://api"),
    ],
    ids=lambda e: e.response["Error"]["Code"] if hasattr(e, "response") else type(e).__name__,
)
def test_what_passes_by_itself_is_tried_again(world: World, trouble: Exception) -> None:
    world.gate.fail("create_training_job", trouble, trouble, trouble)
    assert world.cloudformation("Create", run_id="a")["Status"] == "SUCCESS"
    assert world.sagemaker.created == [world.name("a")]
    assert 0 < world.time.slept < 60


@pytest.mark.parametrize("trouble", [LOST, error("InternalFailure", status=500)])
def test_a_lost_answer_is_found_out_by_looking(world: World, trouble: Exception) -> None:
    world.gate.fail("create_training_job", trouble, when="after")
    assert world.cloudformation("Create", run_id="a")["Status"] == "SUCCESS"
    assert world.sagemaker.created == [world.name("a")]


def test_a_lost_answer_that_cannot_be_looked_up_yet_is_found_at_the_next_try(
    world: World,
) -> None:
    world.gate.fail("create_training_job", THROTTLED, when="after")
    assert world.cloudformation("Create", run_id="a")["Status"] == "SUCCESS"
    assert world.sagemaker.created == [world.name("a")]


def test_a_refusal_is_final_and_gives_the_run_id_back(world: World) -> None:
    world.gate.fail("create_training_job", error("ResourceLimitExceeded", "limit is 0 instances"))
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert "limit is 0 instances" in answer["Reason"]
    assert "Service Quotas" in answer["Reason"]
    assert world.attempt("a") is None
    assert world.frozen("run.json") is None
    assert world.run_state("a") == "refused"
    assert world.ask("start", "a")["state"] == "starting"


def test_throttling_that_does_not_end_is_refused_within_the_functions_time(world: World) -> None:
    world.gate.fail("create_training_job", *[THROTTLED] * 50)
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert "Rate exceeded" in answer["Reason"]
    assert world.time.slept < 120


def test_when_nothing_is_known_the_run_is_stopped_and_the_claim_stays(world: World) -> None:
    world.gate.fail("create_training_job", *[LOST] * 50)
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert not world.owner().wants("a")
    attempt = world.attempt("a")
    assert attempt is not None
    assert attempt.state == "claimed"
    # It had been accepted after all, much later:
    world.gate.faults.clear()
    world.sagemaker.create_training_job(
        **render_request(definition(), stack_id=STACK, run_id="a", attempt=1)
    )
    world.sweep()
    assert world.sagemaker.alive() == []


def test_an_unclear_launch_that_left_no_job_is_closed_by_the_sweep(world: World) -> None:
    world.gate.fail("create_training_job", *[LOST] * 50)
    world.cloudformation("Create", run_id="a")
    world.gate.faults.clear()
    world.time.sleep(CLAIM_GRACE_SECONDS)
    world.sweep()
    attempt = world.attempt("a")
    assert attempt is not None
    assert attempt.settled
    assert world.sagemaker.created == []


# --- Whose name is it ----------------------------------------------------------------------------


def test_a_name_taken_by_another_stack_is_refused(world: World) -> None:
    foreign = render_request(definition(), stack_id=STACK, run_id="a", attempt=1)
    for tag in foreign["Tags"]:
        if tag["Key"] == "cdk-blackwell:stack":
            tag["Value"] = "arn:of:another:stack"
    world.sagemaker.create_training_job(**foreign)
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert "run_id already used" in answer["Reason"]
    assert world.sagemaker.alive() == [world.name("a")], "it is not ours to stop"


def test_a_job_older_than_the_claim_is_not_ours_although_the_tag_agrees(world: World) -> None:
    request = render_request(definition(), stack_id=STACK, run_id="a", attempt=1)
    world.sagemaker.create_training_job(**request)
    world.time.sleep(3600)
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert "run_id already used" in answer["Reason"]


def test_a_prefix_in_s3_left_by_an_earlier_stack_is_refused_and_kept(world: World) -> None:
    world.s3.put_object(Bucket="checkpoints", Key="pretrain/runs/a/run.json", Body=b"theirs")
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert "run_id already used: s3://checkpoints/pretrain/runs/a" in answer["Reason"]
    assert world.frozen("run.json") == b"theirs"
    assert world.sagemaker.created == []


# --- Races and repetitions -----------------------------------------------------------------------


def test_a_stop_that_comes_during_the_launch_finds_its_job_stopped(world: World) -> None:
    world.cloudformation("Create")
    world.gate.hooks["create_training_job"] = lambda: world.quiet.store.stop_run(
        world.owner().owner, "a"
    )
    answer = world.ask("start", "a")
    assert answer["state"] == "stopping"
    assert world.sagemaker.created == [world.name("a")]
    assert world.sagemaker.alive() == []


def test_a_tombstone_written_during_the_launch_finds_its_job_stopped(world: World) -> None:
    world.gate.hooks["create_training_job"] = lambda: world.quiet.store.bury(
        world.owner().owner, stack_id=STACK
    )
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert world.sagemaker.alive() == []


def test_a_tombstone_written_before_the_claim_forbids_it(world: World) -> None:
    world.gate.hooks["transact_write_items"] = lambda: world.quiet.store.bury(
        world.owner().owner, stack_id=STACK
    )
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert world.sagemaker.created == []


def test_a_duplicate_event_neither_launches_nor_answers_again(world: World) -> None:
    event = world.event("Create", run_id="a")
    world.deliver(event)
    world.deliver(event)
    assert len(world.answers) == 1
    assert len(world.sagemaker.created) == 1


def test_the_same_event_repeated_by_lambda_after_its_answer_does_nothing(world: World) -> None:
    event = world.event("Create", run_id="a")
    world.deliver(event, invocation="same")
    calls = len(world.gate.calls)
    world.deliver(event, invocation="same")
    assert len(world.answers) == 1
    assert world.gate.calls[calls:] == ["update_item", "get_item"]


def test_the_answer_is_sent_again_when_cloudformation_does_not_take_it(world: World) -> None:
    world.unreachable = 3
    assert world.cloudformation("Create", run_id="a")["Status"] == "SUCCESS"


def test_an_answer_that_cannot_be_sent_raises_so_that_lambda_repeats_the_event(
    world: World,
) -> None:
    event = world.event("Create", run_id="a")
    world.unreachable = 100
    with pytest.raises(OSError, match="connection reset"):
        world.deliver(event, invocation="same")
    world.unreachable = 0
    world.deliver(event, invocation="same")
    assert [answer["Status"] for answer in world.answers] == ["SUCCESS"]
    assert len(world.sagemaker.created) == 1


def test_grants_that_iam_has_not_spread_yet_are_waited_for(world: World) -> None:
    denied = error("AccessDeniedException", "not authorized to perform: dynamodb:UpdateItem")
    world.gate.fail("update_item", denied, denied)
    world.gate.fail("head_object", error("403", "Forbidden", 403))
    assert world.cloudformation("Create", run_id="a")["Status"] == "SUCCESS"
    assert 0 < world.time.slept < 60


def test_a_table_that_stays_away_is_answered_all_the_same(world: World) -> None:
    denied = error("AccessDeniedException", "not authorized to perform: dynamodb:UpdateItem")
    assert error_code(denied) == "AccessDeniedException"
    world.gate.fail("update_item", *[denied] * 100)
    answer = world.cloudformation("Create", run_id="a")
    assert answer["Status"] == "FAILED"
    assert "dynamodb:UpdateItem" in answer["Reason"]


def test_a_failure_inside_is_answered_with_its_reason_and_the_constant_id(world: World) -> None:
    good = world.cloudformation("Create")
    world.gate.fail("put_object", RuntimeError("the disk is on fire"))
    bad = world.cloudformation("Update", run_id="a")
    assert bad["Status"] == "FAILED"
    assert "RuntimeError: the disk is on fire" in bad["Reason"]
    assert bad["PhysicalResourceId"] == good["PhysicalResourceId"]
    world.time.sleep(CLAIM_GRACE_SECONDS)
    world.sweep()
    assert world.sagemaker.created == [], "nothing starts behind CloudFormation's back"

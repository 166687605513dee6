"""What people and other systems are told: what, why, spent, next step, link."""

from __future__ import annotations

import logging

import pytest

from cdk_blackwell.lifecycle.handler.happenings import DETAIL, DETAIL_TYPES
from tests.lifecycle.fakes import error
from tests.lifecycle.world import World, definition

INTERNAL = "InternalServerError: We encountered an internal error."


@pytest.fixture
def running(world: World) -> World:
    world.cloudformation("Create", run_id="a", job=definition(hourly_price_usd=100.0))
    return world


def types(world: World) -> list[str]:
    return [kind for kind, _ in world.events.sent]


def test_a_resubmission_says_why_what_was_spent_and_where_to_look(running: World) -> None:
    running.sagemaker.jobs[running.name("a")]["BillableTimeInSeconds"] = 7_200
    running.fails(running.name("a"), INTERNAL, step=100)
    assert running.subjects()[-1] == "pretrain a: resubmitted"
    message = running.sns.messages[-1]["Message"]
    assert "attempt 1 ended: SageMaker had an internal error." in message
    assert f"SageMaker's reason: {INTERNAL}" in message
    assert "spent on the run: 200.00 USD" in message
    assert "newest complete checkpoint: step 100" in message
    assert f"#/jobs/{running.name('a', 2)}" in message
    assert '{"action": "stop", "run_id": "a"}' in message


def test_every_message_has_its_event_with_the_same_facts(running: World) -> None:
    running.sagemaker.jobs[running.name("a")]["BillableTimeInSeconds"] = 3_600
    running.fails(running.name("a"), INTERNAL, step=100)
    running.deliver(running.job_event(running.sagemaker.end(running.name("a", 2), "Completed")))
    assert types(running) == [
        "Training Run Launched",
        "Training Run Resubmitted",
        "Training Run Completed",
    ]
    for _, detail in running.events.sent:
        assert set(detail) == set(DETAIL)
    resubmitted = running.events.sent[1][1]
    assert resubmitted["attempt"] == 2
    assert resubmitted["reason"] == INTERNAL
    assert resubmitted["spent_usd"] == 100.0
    assert resubmitted["last_complete_step"] == 100
    assert resubmitted["files"] == "s3://checkpoints/pretrain/runs/a"
    subjects = [f"pretrain a: {detail['what']}" for _, detail in running.events.sent]
    assert subjects == running.subjects()


def test_without_a_price_nothing_is_said_to_be_spent(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=definition(hourly_price_usd=None))
    world.fails(world.name("a"), "AlgorithmError: exit code: 1")
    assert world.events.sent[-1][1]["spent_usd"] is None
    assert "spent" not in world.sns.messages[-1]["Message"]


def test_a_deploy_that_stops_a_run_is_told_with_its_facts(running: World) -> None:
    running.cloudformation("Update", old_run_id="a")
    assert types(running)[-1] == "Training Run Stopping"
    assert running.subjects()[-1] == "pretrain a: stopped by a deploy"
    assert (
        "console: https://us-west-2.console.aws.amazon.com" in running.sns.messages[-1]["Message"]
    )


def test_a_bus_that_takes_nothing_does_not_keep_people_from_hearing(
    running: World, caplog: pytest.LogCaptureFixture
) -> None:
    running.gate.fail("put_events", error("InternalException", status=500))
    with caplog.at_level(logging.ERROR):
        running.deliver(running.job_event(running.sagemaker.end(running.name("a"), "Completed")))
    assert running.subjects()[-1] == "pretrain a: completed"
    assert running.run_state("a") == "completed"
    assert "'Training Run Completed' could not be sent" in caplog.text


def test_every_happening_has_a_type_of_event() -> None:
    assert all(kind.startswith("Training Run ") for kind in DETAIL_TYPES.values())

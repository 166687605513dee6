"""Direct invocations: start, stop, status."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdk_blackwell.lifecycle.handler.definition import ControllerAnswer
from cdk_blackwell.lifecycle.handler.request import render_request
from cdk_blackwell.planning.cost import worst_case_usd
from tests.lifecycle.fakes import STACK
from tests.lifecycle.world import World, definition


@pytest.fixture
def defined(world: World) -> World:
    world.cloudformation("Create")
    return world


def test_start_launches_and_answers_with_the_request_and_the_cost(defined: World) -> None:
    answer = defined.ask("start", "a")
    assert answer["state"] == "starting"
    assert answer["job_name"] == defined.name("a")
    assert answer["request"] == render_request(definition(), stack_id=STACK, run_id="a", attempt=1)
    attempt = worst_case_usd(max_runtime_seconds=86_400, instance_count=1, hourly_price_usd=113.93)
    assert answer["cost"]["worst_case_usd_per_attempt"] == attempt
    assert answer["cost"]["worst_case_usd"] == 5 * attempt
    assert attempt > 24 * 113.93


def test_dry_run_shows_the_request_and_changes_nothing(defined: World) -> None:
    calls = len(defined.gate.calls)
    answer = defined.ask("start", "a", dry_run=True)
    assert answer["state"] == "dry_run"
    assert answer["request"]["TrainingJobName"] == defined.name("a")
    assert set(defined.gate.calls[calls:]) <= {"query", "head_object", "get_item"}
    assert defined.sagemaker.created == []


def test_without_a_price_the_cost_is_unknown_and_not_zero(world: World) -> None:
    world.cloudformation("Create", job=definition(hourly_price_usd=None))
    cost = world.ask("start", "a", dry_run=True)["cost"]
    assert cost["worst_case_usd"] is None
    assert cost["max_runtime_seconds"] == 86_400


def test_start_uses_the_definition_deployed_last(defined: World) -> None:
    defined.cloudformation("Update", job=definition(maximum_attempts=2))
    defined.ask("start", "a")
    assert defined.ask("status", "a")["message"].startswith("attempt 1 of 2")


def test_one_run_at_a_time(defined: World) -> None:
    defined.ask("start", "a")
    answer = defined.ask("start", "b")
    assert answer["state"] == "refused"
    assert "run 'a' of this job is still wanted" in answer["message"]
    assert defined.sagemaker.created == [defined.name("a")]


def test_a_run_id_is_used_once(defined: World) -> None:
    defined.ask("start", "a")
    assert "already used" in defined.ask("start", "a")["message"]
    defined.ask("stop", "a")
    assert "already used" in defined.ask("start", "a")["message"]
    assert "already used" in defined.ask("start", "a", dry_run=True)["message"]
    assert defined.sagemaker.created == [defined.name("a")]


def test_stop_asks_the_job_to_stop_and_is_repeatable(defined: World) -> None:
    defined.ask("start", "a")
    assert defined.ask("stop", "a", dry_run=True)["state"] == "dry_run"
    assert defined.sagemaker.alive() == [defined.name("a")]
    assert defined.ask("stop", "a")["state"] == "stopping"
    assert defined.ask("status", "a")["state"] == "stopping"
    assert defined.ask("stop", "a")["state"] == "stopping"
    defined.time.sleep(200)
    assert defined.ask("stop", "a")["state"] == "stopped"
    assert defined.ask("status", "a")["state"] == "stopped"


def test_stop_and_status_without_a_run_id_mean_the_current_run(defined: World) -> None:
    assert defined.ask("status")["state"] == "none"
    defined.ask("start", "a")
    assert defined.ask("status")["run_id"] == "a"
    assert defined.ask("stop")["run_id"] == "a"
    assert defined.sagemaker.alive() == []


def test_status_tells_the_attempt_and_the_newest_checkpoint(defined: World) -> None:
    defined.ask("start", "a")
    defined.fails(defined.name("a"), "InternalServerError", step=300)
    answer = defined.ask("status", "a")
    assert answer["state"] == "running"
    assert answer["job_name"] == defined.name("a", 2)
    assert "attempt 2 of 5" in answer["message"]
    assert "step 300" in answer["message"]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        ({"action": "fly"}, "allowed are start, trial, stop, status"),
        ({"action": "trial"}, "trial needs a run_id"),
        ({"action": "start"}, "start needs a run_id"),
        ({"action": "start", "run_id": 7}, "a text is expected"),
        ({"action": "start", "run_id": "a b"}, "letters, digits"),
        ({"action": "start", "run_id": "a", "dry_run": "yes"}, "true or false"),
        ({"action": "start", "run_id": "a", "overrides": {"seed": 1}}, "'seed' is not known"),
        ({"action": "start", "run_id": "a", "overrides": ["seed"]}, "an object of names"),
        ({"action": "start", "run_id": "a", "overrides": {"recipe.seed": "x"}}, "type int"),
        ({"action": "start", "run_id": "a", "overrides": {"train_tokens": 0}}, "at least 1"),
        ({"action": "stop", "run_id": "a", "overrides": {"recipe.seed": 1}}, "only with start"),
        (
            {"action": "start", "run_id": "a", "overrides": {"recipe.global_batch_tokens": 256}},
            "is 1 sequences of 256 tokens a step; a multiple of",
        ),
        ({"action": "start", "run_id": "a", "force": True}, "unknown key 'force'"),
        ({"action": "stop", "run_id": "never"}, "was never launched"),
    ],
)
def test_bad_input_is_refused_with_what_is_allowed(
    defined: World, event: dict[str, Any], words: str
) -> None:
    answer = ControllerAnswer.from_dict(defined.deliver(event))
    assert answer.state == "refused"
    assert words in answer.message
    assert defined.sagemaker.created == []


def test_a_controller_without_a_job_says_so(world: World) -> None:
    assert "has no job" in world.ask("start", "a")["message"]


def test_an_unknown_event_is_an_error_that_names_what_is_allowed(world: World) -> None:
    with pytest.raises(ValueError, match="Scheduled Event"):
        world.deliver({"Records": []})


def test_an_answer_keeps_its_keys_and_types() -> None:
    answer = ControllerAnswer(run_id="a", state="none", message="Nothing.")
    assert answer.to_dict() == {
        "run_id": "a",
        "job_name": None,
        "state": "none",
        "request": None,
        "cost": None,
        "message": "Nothing.",
    }
    assert ControllerAnswer.from_dict(answer.to_dict()) == answer
    with pytest.raises(ValueError, match="controller's answer lacks key 'cost'"):
        ControllerAnswer.from_dict({k: v for k, v in answer.to_dict().items() if k != "cost"})


def test_overrides_are_frozen_with_the_run_and_leave_the_next_one_alone(defined: World) -> None:
    answer = defined.ask(
        "start",
        "a",
        overrides={"recipe.optimizer.peak_learning_rate": 1e-4, "train_tokens": 409_600},
    )
    assert answer["state"] == "starting"
    frozen = json.loads(defined.frozen("run.json") or b"")
    assert frozen["recipe"]["optimizer"]["peak_learning_rate"] == 1e-4
    assert frozen["train_tokens"] == 409_600
    assert answer["request"]["HyperParameters"]["train_tokens"] == "409600"
    defined.fails(defined.name("a"), "InternalServerError: again", step=100)
    second = defined.sagemaker.jobs[defined.name("a", 2)]["Request"]
    assert second["HyperParameters"]["train_tokens"] == "409600"
    assert json.loads(defined.owner().definition)["run"]["train_tokens"] == 819_200


def test_what_is_left_of_the_ceiling_is_the_next_attempts_run_time(world: World) -> None:
    attempt = worst_case_usd(max_runtime_seconds=86_400, instance_count=1, hourly_price_usd=100.0)
    world.cloudformation(
        "Create",
        run_id="a",
        job=definition(hourly_price_usd=100.0, max_cost_usd=1.5 * attempt),
    )
    world.sagemaker.jobs[world.name("a")]["BillableTimeInSeconds"] = 80_000
    world.fails(world.name("a"), "InternalServerError: again", step=100)
    second = world.sagemaker.jobs[world.name("a", 2)]["Request"]["StoppingCondition"]
    paid = second["MaxRuntimeInSeconds"] + 120 + 1_800 + 80_000
    assert paid == int(1.5 * (86_400 + 120 + 1_800))
    world.sagemaker.jobs[world.name("a", 2)]["BillableTimeInSeconds"] = 51_000
    world.fails(world.name("a", 2), "InternalServerError: again", step=200)
    assert len(world.sagemaker.created) == 2
    message = world.sns.messages[-1]["Message"]
    assert "max_cost_usd does not pay for another attempt" in message
    assert "spent on the run: 3,638.89 USD of at most 3,680.00 USD" in message
    assert f"console.aws.amazon.com/sagemaker/home?region=us-west-2#/jobs/{world.name('a', 2)}" in (
        message
    )


def test_a_run_whose_money_ran_out_is_not_told_to_raise_its_max_runtime(world: World) -> None:
    attempt = worst_case_usd(max_runtime_seconds=86_400, instance_count=1, hourly_price_usd=100.0)
    job = definition(hourly_price_usd=100.0, max_cost_usd=1.5 * attempt)
    world.cloudformation("Create", run_id="a", job=job)
    world.sagemaker.jobs[world.name("a")]["BillableTimeInSeconds"] = 80_000
    world.fails(world.name("a"), "InternalServerError: again", step=100)
    second = world.name("a", 2)
    world.deliver(world.job_event(world.sagemaker.end(second, "Stopped", "MaxRuntimeExceeded")))
    assert world.run_state("a") == "stopped"
    message = world.sns.messages[-1]["Message"]
    assert "used up the run time that was left of max_cost_usd" in message
    assert "max_runtime" not in message

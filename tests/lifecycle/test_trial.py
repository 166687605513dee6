"""Trials: runs that the trainer is told of, with one attempt and a bounded time."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cdk_blackwell.lifecycle.handler.trial import as_trial, is_trial
from cdk_blackwell.planning.contracts import ENV_TRIAL, ENV_TRIAL_SECONDS, TRIAL_MAXIMUM_SECONDS
from cdk_blackwell.planning.cost import worst_case_usd
from tests.lifecycle.world import World, definition


@pytest.fixture
def defined(world: World) -> World:
    world.cloudformation("Create")
    return world


def ended(world: World, status: str, reason: str = "") -> None:
    world.deliver(world.job_event(world.sagemaker.end(world.name("t"), status, reason=reason)))


def test_the_container_is_told_and_its_time_is_bounded(defined: World) -> None:
    answer = defined.ask("trial", "t", overrides={"recipe.micro_batch_size": 2})
    assert answer["state"] == "starting"
    request = defined.sagemaker.jobs[defined.name("t")]["Request"]
    assert request["Environment"][ENV_TRIAL] == "1"
    assert request["Environment"]["CDKB_RUN_ID"] == "t"
    assert request["StoppingCondition"]["MaxRuntimeInSeconds"] == TRIAL_MAXIMUM_SECONDS
    assert json.loads(defined.frozen("run.json", "t") or b"")["recipe"]["micro_batch_size"] == 2


def test_its_cost_is_that_of_one_short_attempt(defined: World) -> None:
    cost = defined.ask("trial", "t", dry_run=True)["cost"]
    attempt = worst_case_usd(
        max_runtime_seconds=TRIAL_MAXIMUM_SECONDS, instance_count=1, hourly_price_usd=113.93
    )
    assert cost["worst_case_usd"] == cost["worst_case_usd_per_attempt"] == attempt
    assert defined.sagemaker.created == []


def test_a_shorter_limit_of_the_job_stands() -> None:
    request = definition().request
    short = {**request["StoppingCondition"], "MaxRuntimeInSeconds": 600}
    trial = as_trial(definition(request={**request, "StoppingCondition": short}))
    assert trial.request["StoppingCondition"]["MaxRuntimeInSeconds"] == 600
    assert trial.request["Environment"][ENV_TRIAL_SECONDS] == "600"
    assert is_trial(trial)
    assert not is_trial(definition())


def test_the_next_run_is_a_run_again(defined: World) -> None:
    defined.ask("trial", "t")
    ended(defined, "Completed")
    defined.ask("start", "a")
    request = defined.sagemaker.jobs[defined.name("a")]["Request"]
    assert ENV_TRIAL not in request["Environment"]
    assert request["StoppingCondition"]["MaxRuntimeInSeconds"] == 86_400


def test_its_end_names_the_report(defined: World) -> None:
    defined.ask("trial", "t")
    ended(defined, "Completed")
    assert defined.run_state("t") == "completed"
    message = defined.sns.messages[-1]["Message"]
    assert "s3://checkpoints/pretrain/runs/t/trial.json" in message
    assert "cdk-blackwell trial t --report" in message


def test_it_is_never_resubmitted_nor_run_under_its_id(defined: World) -> None:
    defined.ask("trial", "t")
    ended(defined, "Failed", "CapacityError: none left")
    defined.sweep()
    assert defined.sagemaker.created == [defined.name("t")]
    assert defined.run_state("t") == "failed"
    assert "Start another trial" in defined.sns.messages[-1]["Message"]
    assert "already used" in defined.ask("start", "t")["message"]


def test_a_job_with_a_script_of_its_own_is_refused(world: World) -> None:
    request: dict[str, Any] = definition().request
    script = {**request["AlgorithmSpecification"], "ContainerArguments": ["exec python3 mine.py"]}
    world.cloudformation(
        "Create", job=definition(request={**request, "AlgorithmSpecification": script})
    )
    answer = world.ask("trial", "t")
    assert answer["state"] == "refused"
    assert "a script of its own" in answer["message"]
    assert world.sagemaker.created == []

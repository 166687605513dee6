"""``trial``: the report of a run is waited for and shown; without one, the reason is."""

from __future__ import annotations

import json

import pytest

from cdk_blackwell.cli.errors import CheckFailedError, CommandError
from cdk_blackwell.cli.trial.waiting import wait_for_report
from cdk_blackwell.deployed.jobs import find_job
from cdk_blackwell.deployed.session import Aws
from tests.cli.deployment import Deployment
from tests.cli.start.test_start import keep_trial
from tests.lifecycle.fakes import REGION


@pytest.fixture
def started(deployment: Deployment) -> Deployment:
    deployment.world.ask("start", "t")
    return deployment


def test_the_report_names_the_winner_within_80_columns(started: Deployment) -> None:
    keep_trial()
    done = started.run("trial", "t", "--report")
    assert done.exit_code == 0, done.exception
    (row,) = [line for line in done.stdout.splitlines() if line.startswith("*")]
    assert row.split() == ["*", "shard8", "bf16", "4", "100", "ok"]
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert started.json("trial", "t", "--report")["winner"] == 0


def test_without_a_winner_the_check_has_failed(started: Deployment) -> None:
    keep_trial(outcome="hung")
    done = started.run("trial", "t", "--report", "--json")
    assert json.loads(done.stdout)["winner"] is None
    assert isinstance(done.exception, CheckFailedError)


def test_a_report_that_comes_later_is_waited_for(started: Deployment) -> None:
    aws = Aws(session=None, region=REGION)
    said: list[str] = []
    report = wait_for_report(
        aws,
        find_job(aws, None, None),
        "t",
        looks=3,
        sleep=lambda: keep_trial() if len(said) else None,
        say=said.append,
    )
    assert report.winner == 0
    assert said == [f"{started.world.name('t')}: Training"]


def test_a_look_does_not_wait(started: Deployment) -> None:
    error = started.run("trial", "t", "--report", "--no-wait").exception
    assert isinstance(error, CommandError)
    assert "no report yet; it is Training" in str(error)


def test_a_run_that_ended_without_a_report_gives_its_reason(started: Deployment) -> None:
    started.world.ask("stop", "t")
    world = started.world
    detail = world.sagemaker.end(world.name("t"), "Stopped")
    world.deliver(world.job_event(detail))
    error = started.run("trial", "t", "--report").exception
    assert isinstance(error, CheckFailedError)
    assert "ended (stopped) without a report" in str(error)


def test_the_controller_is_asked_for_a_trial_first_without_starting_it(
    deployment: Deployment,
) -> None:
    deployment.run("trial", "u", "--set", "seed=3", "--dry-run")
    (event,) = deployment.functions.events
    assert event == {"action": "trial", "run_id": "u", "overrides": {"seed": 3}, "dry_run": True}
    assert deployment.world.sagemaker.created == []

"""``watch``: one frame tells phase, progress, age, time and money, from whatever source has it."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from cdk_blackwell.planning.contracts import PROGRESS_FILE, RunLocation
from tests.cli.deployment import Deployment
from tests.cli.logs.test_logs import say
from tests.lifecycle.fakes import CHECKPOINTS
from tests.lifecycle.world import PROGRESS

METRICS = {
    "cdk_blackwell": "metrics",
    "step": 50,
    "loss": 3.25,
    "tokens_per_second": 81_920.0,
    "mfu": 41.5,
    "memory_reserved_gib": 160.25,
    "data_wait_seconds": 0.004,
    "step_seconds": 2.0,
    "flops_convention": "causal",
}


@pytest.fixture
def training(deployment: Deployment) -> Deployment:
    world = deployment.world
    world.ask("start", "a")
    world.sagemaker.jobs[world.name("a")]["BillableTimeInSeconds"] = 3_600
    saved = datetime.now(UTC) - timedelta(minutes=10)
    told = replace(
        PROGRESS,
        step=45,
        last_complete_step=40,
        checkpointed_at=saved.isoformat(),
        metrics={"gradient_norm": 1.5},
    )
    where = RunLocation(bucket=CHECKPOINTS, job="pretrain", run_id="a")
    world.s3.put_object(
        Bucket=where.bucket, Key=where.key(PROGRESS_FILE), Body=told.to_json().encode()
    )
    say(
        world.name("a"),
        "algo-1",
        (0, json.dumps({"cdk_blackwell": "event", "event": "compiled"})),
        (1, json.dumps(METRICS)),
        (2, "{not json"),
    )
    return deployment


def test_a_frame_joins_table_log_and_progress(training: Deployment) -> None:
    frame = training.json("watch", "--once")
    assert (frame["run_id"], frame["state"], frame["phase"]) == ("a", "running", "Training")
    assert (frame["step"], frame["steps"]) == (50, 200)
    assert frame["metrics"]["loss"] == 3.25
    assert frame["metrics"]["gradient_norm"] == 1.5
    assert frame["eta_seconds"] == 150 * 2.0
    assert frame["checkpoint_step"] == 40
    assert 600 <= frame["checkpoint_age_seconds"] < 660
    assert frame["spend_usd"] == pytest.approx(113.93)
    assert frame["ceiling_usd"] == pytest.approx(13_975.41, abs=0.01)
    assert frame["last_event"] == "compiled"
    assert not frame["ended"]


def test_the_panel_says_it_within_80_columns(training: Deployment) -> None:
    shown = training.run("watch", "--once").stdout
    for words in (
        "50 of 200 (25.0 %)",
        "81,920 tokens/s",
        "41.5 %",
        "160.2 GiB reserved",
        "step 40, 10 min old",
        "about 5 min",
        "113.93 of at most 13,975.41 USD",
    ):
        assert words in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_a_new_attempt_begins_without_the_last_ones_numbers(training: Deployment) -> None:
    training.world.fails(training.world.name("a"), "InternalServerError: We are sorry.")
    frame = training.json("watch", "--once")
    assert (frame["attempt"], frame["step"], frame["metrics"]) == (2, None, {})
    assert frame["checkpoint_step"] == 40


def test_watching_ends_with_the_run(training: Deployment) -> None:
    world = training.world
    detail = world.sagemaker.end(world.name("a"), "Completed")
    world.deliver(world.job_event(detail))
    (line,) = training.run("watch", "--json").stdout.splitlines()
    frame = json.loads(line)
    assert (frame["state"], frame["ended"], frame["eta_seconds"]) == ("completed", True, None)

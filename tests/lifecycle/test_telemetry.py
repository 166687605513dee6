"""Numbers of a running job reach CloudWatch under names that outlive it, and never harm the run."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from cdk_blackwell.lifecycle.handler.telemetry import embedded_metrics
from cdk_blackwell.planning.metrics import METRICS, RUN_METRICS
from tests.lifecycle.fakes import error
from tests.lifecycle.world import World, definition

Printed = pytest.CaptureFixture[str]


def ago(world: World, seconds: float) -> str:
    return datetime.fromtimestamp(world.time.now() - seconds, UTC).isoformat()


def records(printed: Printed) -> list[dict[str, Any]]:
    return [json.loads(line) for line in printed.readouterr().out.splitlines() if '"_aws"' in line]


@pytest.fixture
def running(world: World) -> World:
    """Run ``a`` has trained for an hour."""
    world.cloudformation("Create", run_id="a")
    world.time.sleep(3600)
    return world


def test_a_sweep_publishes_what_the_trainer_last_said(running: World, capsys: Printed) -> None:
    running.progress(
        900,
        stepped_at=ago(running, 20),
        checkpointed_at=ago(running, 600),
        metrics={"tokens_per_second": 250_000.0, "memory_reserved_gib": 150.5},
    )
    host = f"{running.name('a')}/algo-1"
    running.cloudwatch.utilization = {host: [600.0, 800.0]}
    running.sweep()
    (record,) = records(capsys)
    assert (record["Job"], record["Tier"], record["RunId"]) == ("pretrain", "small", "a")
    assert record["TokensPerSecond"] == 250_000
    assert record["MemoryReserved"] == 150.5
    assert record["Loss"] == 2.5
    assert record["LossNotFinite"] == 0
    assert record["Step"] == 1000
    assert record["StepAge"] == pytest.approx(20, abs=1)
    assert record["CheckpointAge"] == pytest.approx(600, abs=1)
    assert record["GpuUtilization"] == pytest.approx(700 / 8)
    assert record["RunningInstances"] == 1
    assert record["Spend"] == pytest.approx(113.93, rel=1e-3)


def test_the_record_is_in_the_embedded_metric_format(running: World, capsys: Printed) -> None:
    running.progress(0)
    running.sweep()
    (record,) = records(capsys)
    (directive,) = record["_aws"]["CloudWatchMetrics"]
    assert record["_aws"]["Timestamp"] == pytest.approx(running.time.now() * 1000, abs=1000)
    assert directive["Namespace"] == "CdkBlackwell"
    assert directive["Dimensions"] == [["Job", "Tier"]]
    units = {metric.name: metric.unit for metric in (*METRICS, *RUN_METRICS)}
    for metric in directive["Metrics"]:
        assert metric["Unit"] == units[metric["Name"]]
        assert isinstance(record[metric["Name"]], float | int)


def test_before_the_first_step_ages_count_from_the_start_of_training(
    running: World, capsys: Printed
) -> None:
    running.sweep()
    (record,) = records(capsys)
    assert record["StepAge"] == pytest.approx(3600, abs=60)
    assert record["CheckpointAge"] == record["StepAge"]
    assert "GpuUtilization" not in record


def test_an_earlier_attempts_progress_is_not_taken_for_this_ones(
    running: World, capsys: Printed
) -> None:
    running.fails(running.name("a"), "InternalServerError", step=100)
    capsys.readouterr()
    running.sweep()
    (record,) = records(capsys)
    assert record["TrainingJobName"] == running.name("a", 2)
    assert "Loss" not in record


def test_the_spend_counts_every_attempt_of_the_run(running: World, capsys: Printed) -> None:
    first = running.sagemaker.jobs[running.name("a")]
    first["TrainingEndTime"] = datetime.fromtimestamp(running.time.now(), UTC)
    running.fails(running.name("a"), "InternalServerError", step=100)
    running.time.sleep(1800)
    capsys.readouterr()
    running.sweep()
    (record,) = records(capsys)
    assert record["Spend"] == pytest.approx(1.5 * 113.93, rel=1e-2)


def test_a_loss_that_is_not_finite_is_told_when_the_attempt_fails(
    running: World, capsys: Printed
) -> None:
    running.progress(100, loss=float("nan"))
    detail = running.sagemaker.end(running.name("a"), "Failed", reason="CDKB class=user ...")
    capsys.readouterr()
    running.deliver(running.job_event(detail))
    (record,) = records(capsys)
    assert record["LossNotFinite"] == 1
    assert "Loss" not in record
    assert record["RunningInstances"] == 0


def test_without_a_price_there_is_no_spend(world: World, capsys: Printed) -> None:
    world.cloudformation("Create", run_id="a", job=definition(hourly_price_usd=None))
    world.sweep()
    (record,) = records(capsys)
    assert "Spend" not in record


def test_nothing_is_published_before_instances_are_held_and_after_the_end(
    world: World, capsys: Printed
) -> None:
    world.cloudformation("Create", run_id="a")
    began = world.sagemaker.jobs[world.name("a")].pop("TrainingStartTime")
    world.sweep()
    assert not records(capsys)
    world.sagemaker.jobs[world.name("a")]["TrainingStartTime"] = began
    world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))
    assert len(records(capsys)) == 1
    world.sweep()
    assert not records(capsys)


def test_metrics_that_cannot_be_read_do_not_keep_a_job_from_being_stopped(
    running: World, capsys: Printed
) -> None:
    running.progress(100, stepped_at=ago(running, 5))
    running.quiet.store.stop_run(running.owner().owner, "a")
    running.gate.fail("get_object", error("AccessDenied"))
    capsys.readouterr()
    running.sweep()
    assert not records(capsys)
    assert running.sagemaker.alive() == []


def test_the_numbers_come_after_what_the_run_needs(running: World) -> None:
    running.progress(100, stepped_at=ago(running, 5))
    running.quiet.store.stop_run(running.owner().owner, "a")
    before = len(running.gate.calls)
    running.sweep()
    calls = running.gate.calls[before:]
    assert calls.index("stop_training_job") < calls.index("get_metric_data")


def test_unknown_keys_of_a_newer_trainer_are_left_out() -> None:
    record = embedded_metrics(
        {"loss": 1.0, "hype": 2.0}, job="j", tier="small", now=1.0, properties={}
    )
    assert [m["Name"] for m in record["_aws"]["CloudWatchMetrics"][0]["Metrics"]] == ["Loss"]

"""``progress.json``: where it goes, that it stays fresh, and that it never hurts the training."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from cdk_blackwell.planning.records import Progress
from trainer.progress import INTERVAL_SECONDS, ProgressWriter

OLD = "2020-01-15T10:00:00+00:00"


def progress(step: int) -> Progress:
    return Progress(
        attempt=2,
        step=step,
        tokens=9,
        loss=1.0,
        validation_loss=None,
        last_complete_step=3,
        time=OLD,
    )


@pytest.fixture
def no_region(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in SageMaker: no configuration, and no AWS_DEFAULT_REGION."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/absent")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    with mock_aws():
        yield


@pytest.mark.usefixtures("no_region")
def test_progress_goes_to_the_runs_prefix() -> None:
    s3 = boto3.client("s3", region_name="us-east-1")
    s3.create_bucket(Bucket="bucket")
    warnings: list[str] = []
    writer = ProgressWriter(
        run_uri="s3://bucket/job/runs/r1",
        folder=Path("unused"),
        warn=lambda event, **details: warnings.append(event),
    )
    writer.write(progress(4))
    writer.close()
    body = s3.get_object(Bucket="bucket", Key="job/runs/r1/progress.json")["Body"].read()
    assert Progress.from_json(body) == progress(4)
    assert not warnings


@pytest.mark.usefixtures("no_region")
def test_the_region_is_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str | None] = []
    client = boto3.client

    def note(service: str, *, region_name: str | None, config: Any) -> Any:
        asked.append(region_name)
        return client("s3", region_name=region_name, config=config)

    monkeypatch.setattr(boto3, "client", note)
    writer = ProgressWriter(
        run_uri="s3://absent/x", folder=Path("x"), warn=lambda *_, **__: None, region="us-west-2"
    )
    writer.write(progress(4))
    writer.close()
    assert asked == ["us-west-2"]


@pytest.mark.usefixtures("no_region")
def test_an_s3_error_is_a_warning_and_nothing_more() -> None:
    warnings: list[tuple[str, str]] = []
    writer = ProgressWriter(
        run_uri="s3://absent/job/runs/r1",
        folder=Path("unused"),
        warn=lambda event, **details: warnings.append((event, details["reason"])),
    )
    writer.write(progress(4))
    writer.close()
    ((event, reason),) = warnings
    assert event == "progress_not_written"
    assert "NoSuchBucket" in reason


def read(folder: Path) -> Progress:
    return Progress.from_json((folder / "progress.json").read_text())


def test_without_s3_progress_is_a_file(tmp_path: Path) -> None:
    writer = ProgressWriter(run_uri=None, folder=tmp_path / "data", warn=print)
    writer.write(progress(4))
    writer.write(progress(5))
    writer.close()
    assert read(tmp_path / "data") == progress(5)


def test_the_last_known_state_is_written_again_before_five_minutes_are_over(
    tmp_path: Path,
) -> None:
    now = [0.0]
    writer = ProgressWriter(run_uri=None, folder=tmp_path, warn=print, clock=lambda: now[0])
    writer.refresh()
    now[0] = 1000.0
    writer.refresh()
    writer.write(progress(4))
    writer.note(progress(7))
    now[0] += INTERVAL_SECONDS - 1
    writer.refresh()
    writer.close()
    assert read(tmp_path) == progress(4), "not yet due, and nothing known before"

    writer = ProgressWriter(run_uri=None, folder=tmp_path, warn=print, clock=lambda: now[0])
    writer.note(progress(7))
    now[0] += INTERVAL_SECONDS
    writer.refresh()
    writer.close()
    fresh = read(tmp_path)
    assert replace(fresh, time=OLD) == progress(7)
    assert fresh.time > OLD
    assert INTERVAL_SECONDS < 300


def test_the_timer_needs_no_help_from_the_training_thread(tmp_path: Path) -> None:
    writer = ProgressWriter(
        run_uri=None, folder=tmp_path, warn=print, interval_seconds=0.0, poll_seconds=0.01
    )
    (timer,) = (t for t in threading.enumerate() if t.name == "progress-timer")
    assert timer.daemon
    writer.note(progress(7))
    pause = threading.Event()
    for _ in range(500):
        if (tmp_path / "progress.json").exists():
            break
        pause.wait(0.01)
    writer.close()
    assert read(tmp_path).step == 7
    assert not timer.is_alive()

"""What the trainer writes about a run is what the controller reads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.planning.contracts import PROGRESS_FILE, RunLocation
from tests.lifecycle.fakes import CHECKPOINTS
from tests.lifecycle.world import PROGRESS, World, definition
from trainer.progress import ProgressWriter

RUN = RunLocation(bucket=CHECKPOINTS, job="pretrain", run_id="a")
WRITTEN = {
    "schema_version": 1,
    "attempt": 2,
    "step": 1_000,
    "tokens": 4_096_000,
    "loss": 2.5,
    "validation_loss": None,
    "last_complete_step": 900,
    "time": "2027-01-15T12:00:00+00:00",
    "stepped_at": "2027-01-15T11:59:58+00:00",
    "checkpointed_at": None,
    "metrics": {"tokens_per_second": 250_000.0},
}


def read(world: World) -> int:
    return world.quiet.storage.last_complete_step(definition(), "a")


def test_the_trainers_own_writer_is_understood(world: World, tmp_path: Path) -> None:
    def warn(name: str, **details: Any) -> None:
        raise AssertionError((name, details))

    writer = ProgressWriter(run_uri=RUN.uri, folder=tmp_path, warn=warn)
    writer.write(type(PROGRESS).from_dict(WRITTEN))
    writer.close()
    body = world.frozen(PROGRESS_FILE)
    assert body is not None
    assert json.loads(body) == WRITTEN
    assert read(world) == 900


def test_before_the_first_report_there_is_no_checkpoint(world: World) -> None:
    assert read(world) == 0


@pytest.mark.parametrize(
    "text",
    [
        json.dumps({**WRITTEN, "schema_version": 2}),
        json.dumps({key: value for key, value in WRITTEN.items() if key != "last_complete_step"}),
        json.dumps({**WRITTEN, "last_complete_step": -5}),
        "[]",
        "{",
    ],
)
def test_what_cannot_be_read_counts_as_no_progress(world: World, text: str) -> None:
    world.s3.put_object(Bucket=RUN.bucket, Key=RUN.key(PROGRESS_FILE), Body=text.encode())
    assert read(world) == 0


def test_keys_of_a_newer_trainer_are_passed_over(world: World) -> None:
    body = json.dumps({**WRITTEN, "newer": True}).encode()
    world.s3.put_object(Bucket=RUN.bucket, Key=RUN.key(PROGRESS_FILE), Body=body)
    assert read(world) == 900

"""The part of an own script that the run controller relies on; put your training in ``train``."""

from __future__ import annotations

import json
import os
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path

import boto3

ROOT = Path(os.environ.get("CDKB_ROOT", "/opt/ml"))
CHECKPOINTS = Path(os.environ["CDKB_CHECKPOINT_DIR"])
STATE = CHECKPOINTS / "state.json"
RANK = int(os.environ.get("RANK", "0"))
STEPS, STEPS_BETWEEN_CHECKPOINTS = 100, 20

stopping = False


def on_sigterm(_signal: int, _frame: object) -> None:
    """120 seconds are left: save at the end of the step that runs."""
    global stopping
    stopping = True


def save(step: int) -> None:
    """Whatever lies below ``CHECKPOINTS`` survives the attempt; replaced, never half written."""
    draft = STATE.with_suffix(".tmp")
    draft.write_text(json.dumps({"step": step}))
    draft.replace(STATE)
    report(step)


def report(step: int) -> None:
    """``progress.json``: without it the controller sees no progress, and resumes only once."""
    now = datetime.now(UTC).isoformat()
    progress = {
        "schema_version": 1,
        "attempt": int(os.environ["CDKB_ATTEMPT"]),
        "step": step,
        "tokens": step * 1_048_576,
        "loss": None,
        "validation_loss": None,
        "last_complete_step": step,
        "time": now,
        # Of the last finished step and of the last checkpoint: alarms look at their age.
        "stepped_at": now,
        "checkpointed_at": now,
    }
    bucket, _, prefix = os.environ["CDKB_RUN_S3"].removeprefix("s3://").partition("/")
    boto3.client("s3").put_object(
        Bucket=bucket, Key=f"{prefix}/progress.json", Body=json.dumps(progress).encode()
    )


def train(first_step: int) -> None:
    """Go on after ``first_step``. Ranks that compute must agree when to stop; these do not."""
    for step in range(first_step + 1, STEPS + 1):
        if RANK == 0 and (stopping or step % STEPS_BETWEEN_CHECKPOINTS == 0):
            save(step)
        if stopping:
            return


def main() -> int:
    """The class in the failure text says whether another attempt makes sense."""
    signal.signal(signal.SIGTERM, on_sigterm)
    CHECKPOINTS.mkdir(parents=True, exist_ok=True)
    first_step = json.loads(STATE.read_text())["step"] if STATE.exists() else 0
    try:
        train(first_step)
    except ValueError as error:
        # "user" ends the run: it would fail again. "infrastructure" is tried again.
        failure = ROOT / "output" / "failure"
        failure.parent.mkdir(parents=True, exist_ok=True)
        failure.write_text(f"CDKB class=user step={first_step} rank={RANK}: {error}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What the trainer shows to others, without training: metrics, checkpoints, progress, SIGTERM.

As many steps as ``run.json`` has tokens for, half a second each; saving at a stop takes
``SAVE_SECONDS``.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3

from cdk_blackwell.planning.contracts import CHANNEL_CONFIG, COMPLETE_FILE, RUN_FILE, step_folder
from cdk_blackwell.planning.records import CompleteMarker, FileRecord, Progress

ROOT = Path(os.environ["CDKB_ROOT"])
CHECKPOINTS = ROOT / Path(os.environ["CDKB_CHECKPOINT_DIR"]).relative_to("/opt/ml")
FIRST_CHECKPOINT, STEPS_BETWEEN_CHECKPOINTS = 2, 50

stopping = threading.Event()
signal.signal(signal.SIGTERM, lambda *_: stopping.set())


def save(step: int, run: dict[str, Any]) -> None:
    folder = CHECKPOINTS / step_folder(step)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "weights").write_text(str(step))
    digest = hashlib.sha256(str(step).encode()).hexdigest()
    tokens = step * run["recipe"]["global_batch_tokens"]
    marker = CompleteMarker(
        run_id=run["run_id"],
        step=step,
        tokens=tokens,
        ranks=1,
        recipe_sha256="0" * 64,
        files={"weights": FileRecord(bytes=len(str(step)), sha256=digest)},
    )
    (folder / COMPLETE_FILE).write_text(marker.to_json())
    progress = Progress(
        attempt=int(os.environ["CDKB_ATTEMPT"]),
        step=step,
        tokens=tokens,
        loss=5.0 / step,
        validation_loss=None,
        last_complete_step=step,
        time=datetime.now(UTC).isoformat(),
    )
    bucket, _, prefix = os.environ["CDKB_RUN_S3"].removeprefix("s3://").partition("/")
    boto3.client("s3").put_object(
        Bucket=bucket, Key=f"{prefix}/progress.json", Body=progress.to_json().encode()
    )


run = json.loads((ROOT / "input" / "data" / CHANNEL_CONFIG / RUN_FILE).read_text())
print(f"run {run['run_id']} note={os.environ.get('NOTE', 'none')}", flush=True)
steps = run["train_tokens"] // run["recipe"]["global_batch_tokens"]
for step in range(1, steps + 1):
    print(json.dumps({"cdk_blackwell": "metrics", "step": step, "loss": 5.0 / step}), flush=True)
    due = step in (FIRST_CHECKPOINT, steps) or step % STEPS_BETWEEN_CHECKPOINTS == 0
    if stopping.wait(0.5) or due:
        time.sleep(float(os.environ.get("SAVE_SECONDS", "0")) if stopping.is_set() else 0)
        save(step, run)
    if stopping.is_set():
        break
(ROOT / "model" / "weights").write_text(f"{run['run_id']} {step}")

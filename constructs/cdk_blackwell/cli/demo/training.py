"""Watching a run as a user would: DescribeTrainingJob and CloudWatch Logs; and the one murder."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from cdk_blackwell.cli.errors import AwsRefusedError
from cdk_blackwell.local.aws import LocalAws
from cdk_blackwell.planning.contracts import NAMESPACE_OF_JOBS, PROGRESS_FILE, RunLocation
from cdk_blackwell.planning.metrics import LINE_KEY, LINE_METRICS

POLL_SECONDS = 0.5
SILENCE_SECONDS = 300.0
"""A run that shows no new step and no new state for this long is given up."""

TERMINAL = frozenset({"Completed", "Failed", "Stopped"})


@dataclass(kw_only=True)
class Attempt:
    """One training job of the run, and what it has told so far."""

    name: str
    status: str = "InProgress"
    secondary_status: str = "Starting"
    failure_reason: str = ""
    metrics: list[dict[str, Any]] = field(default_factory=list)
    events: list[dict[str, Any]] = field(default_factory=list)
    _log_token: str | None = None

    @property
    def step(self) -> int:
        """Last step told."""
        return int(self.metrics[-1]["step"]) if self.metrics else 0

    @property
    def training_lines(self) -> list[dict[str, Any]]:
        """Lines about training steps; a validation has a line of its own."""
        return [line for line in self.metrics if "loss" in line]

    @property
    def resumed_from_step(self) -> int | None:
        """The checkpoint it began from, if any."""
        return next((int(e["step"]) for e in self.events if e["event"] == "resumed"), None)


class RunWatcher:
    """Follows all attempts of one run."""

    def __init__(self, aws: LocalAws, *, run: RunLocation) -> None:
        self.run = run
        self.attempts: dict[str, Attempt] = {}
        self._sagemaker = aws.client("sagemaker")
        self._logs = aws.client("logs")
        self._s3 = aws.client("s3")

    def poll(self) -> Iterator[Attempt]:
        """Yield the newest attempt again and again until the caller stops."""
        seen: tuple[object, ...] = ()
        seen_at = time.monotonic()
        while True:
            attempt = self._refresh()
            now = (attempt.name, attempt.secondary_status, attempt.step) if attempt else ()
            if now != seen:
                seen, seen_at = now, time.monotonic()
            if time.monotonic() - seen_at > SILENCE_SECONDS:
                raise AwsRefusedError(
                    f"the run shows nothing new for {SILENCE_SECONDS:.0f} s: {now}"
                )
            if attempt is not None:
                yield attempt
            time.sleep(POLL_SECONDS)

    def progress(self) -> dict[str, Any]:
        """The run's progress.json, empty before the first checkpoint."""
        key = self.run.key(PROGRESS_FILE)
        with suppress(self._s3.exceptions.NoSuchKey):
            body = self._s3.get_object(Bucket=self.run.bucket, Key=key)["Body"].read()
            value: dict[str, Any] = json.loads(body)
            return value
        return {}

    def _refresh(self) -> Attempt | None:
        jobs = self._sagemaker.list_training_jobs(NameContains=self.run.run_id)
        names = [job["TrainingJobName"] for job in jobs["TrainingJobSummaries"]]
        for name in sorted(names, key=_attempt_number):
            attempt = self.attempts.setdefault(name, Attempt(name=name))
            if attempt.status not in TERMINAL:
                # State before log: once the state is terminal, the log read after it is whole.
                job = self._sagemaker.describe_training_job(TrainingJobName=name)
                self._read_log(attempt)
                attempt.status = job["TrainingJobStatus"]
                attempt.secondary_status = job["SecondaryStatus"]
                attempt.failure_reason = job.get("FailureReason", "")
        return list(self.attempts.values())[-1] if self.attempts else None

    def _read_log(self, attempt: Attempt) -> None:
        streams = self._logs.describe_log_streams(
            logGroupName=NAMESPACE_OF_JOBS, logStreamNamePrefix=f"{attempt.name}/algo-1-"
        )["logStreams"]
        for stream in streams:
            while True:
                token = {"nextToken": attempt._log_token} if attempt._log_token else {}
                page = self._logs.get_log_events(
                    logGroupName=NAMESPACE_OF_JOBS,
                    logStreamName=stream["logStreamName"],
                    startFromHead=True,
                    **token,
                )
                for event in page["events"]:
                    _read_line(event["message"], attempt)
                if page["nextForwardToken"] == attempt._log_token:
                    break
                attempt._log_token = page["nextForwardToken"]


def _attempt_number(job_name: str) -> int:
    return int(job_name.rsplit("-", 1)[1])


def _read_line(message: str, attempt: Attempt) -> None:
    for line in message.splitlines():
        if not line.startswith("{"):
            continue
        with suppress(json.JSONDecodeError):
            record = json.loads(line)
            if record.get(LINE_KEY) == LINE_METRICS:
                attempt.metrics.append(record)
            elif LINE_KEY in record:
                attempt.events.append(record)


def kill_workers(container: Path) -> list[int]:
    """SIGKILL every training rank of a container, as a lost host would; returns their pids.

    ``container`` is the job's folder in the embedded AWS; its ``container.json`` names the pid of
    the container's first process. The launcher and torchrun stay, and must notice.
    """
    first = psutil.Process(json.loads((container / "container.json").read_text())["pid"])
    ranks = [
        process
        for process in first.children(recursive=True)
        if "RANK" in _environment(process) and "LOCAL_RANK" in _environment(process)
    ]
    for rank in ranks:
        with suppress(psutil.NoSuchProcess):
            rank.kill()
    return [rank.pid for rank in ranks]


def _environment(process: psutil.Process) -> dict[str, str]:
    with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
        return process.environ()
    return {}

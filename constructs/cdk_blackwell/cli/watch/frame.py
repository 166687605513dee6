"""One look at a run: the controller's table, SageMaker, ``progress.json`` and the newest log lines.

Nothing is remembered between looks but which log lines were read, so a lost connection costs one
look and no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from cdk_blackwell.cli.aws.history import RunFacts, find_run
from cdk_blackwell.cli.logs.lines import Follower, Line
from cdk_blackwell.cli.trial.reports import MISSING, location
from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.direct import cost_of
from cdk_blackwell.planning.contracts import PROGRESS_FILE
from cdk_blackwell.planning.metrics import LINE_EVENT, LINE_KEY, LINE_METRICS, METRICS
from cdk_blackwell.planning.records import Progress

_KEYS = frozenset(metric.key for metric in METRICS)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What is known of a run at one moment; None where nothing is."""

    time: str
    """ISO 8601, UTC."""
    run_id: str
    state: str
    """The run's, by the controller."""
    attempt: int
    maximum_attempts: int | None
    job_name: str
    phase: str
    """SageMaker's secondary status, or why it has not taken the job yet."""
    step: int | None
    steps: int | None
    """Of the whole run."""
    metrics: Mapping[str, float]
    """Newest numbers of the metrics table by key."""
    checkpoint_step: int
    """Newest complete one, 0 before the first."""
    checkpoint_age_seconds: float | None
    eta_seconds: float | None
    """Steps left times seconds a step, validation and checkpoints left out."""
    spend_usd: float | None
    ceiling_usd: float | None
    """The stack's ``max_cost_usd``, else the worst case of all attempts; None without a price."""
    last_event: str
    """Newest event that the trainer or the launcher announced."""
    ended: bool
    message: str


class Watcher:
    """Makes frames of one run; follows it from attempt to attempt."""

    def __init__(self, aws: Aws, job: DeployedJob, run_id: str) -> None:
        self._aws, self._job, self._run_id = aws, job, run_id
        self._job_name = ""
        self._follower: Follower | None = None
        self._metrics: dict[str, float] = {}
        self._event = ""

    def look(self) -> Frame:
        """One frame."""
        run = find_run(self._aws, self._job, self._run_id)
        attempt = run.newest
        if attempt.record.job_name != self._job_name:
            self._job_name = attempt.record.job_name
            self._follower = Follower(self._aws, self._job_name)
            self._metrics, self._event = {}, ""
        assert self._follower is not None
        self._read(self._follower.new_lines())
        progress = self._progress()
        if progress is not None and progress.attempt == attempt.record.attempt:
            told = _of_progress(progress)
            newer = progress.step > self._metrics.get("step", -1)
            # The log is a few minutes ahead of the file, unless lines were lost.
            self._metrics = self._metrics | told if newer else told | self._metrics
        return self._frame(run, progress, datetime.now(UTC))

    def _read(self, lines: Iterable[Line]) -> None:
        for line in lines:
            record = _record(line.text)
            if record.get(LINE_KEY) == LINE_METRICS:
                self._metrics |= {
                    key: float(value)
                    for key, value in record.items()
                    if key in _KEYS and isinstance(value, (int, float))
                }
            elif record.get(LINE_KEY) == LINE_EVENT:
                self._event = str(record.get("event", ""))

    def _progress(self) -> Progress | None:
        where = location(self._job, self._run_id)
        try:
            answer = self._aws.client("s3").get_object(
                Bucket=where.bucket, Key=where.key(PROGRESS_FILE)
            )
        except ClientError as error:
            if error.response["Error"]["Code"] in MISSING:
                return None
            raise
        try:
            return Progress.from_json(answer["Body"].read())
        except ValueError:
            return None  # Another version wrote it; the log still tells.

    def _frame(self, run: RunFacts, progress: Progress | None, now: datetime) -> Frame:
        newest, definition = run.newest, run.definition
        step = int(self._metrics["step"]) if "step" in self._metrics else None
        steps = _train_steps(definition.run) if definition else None
        seconds = self._metrics.get("step_seconds")
        ended = run.state != "running"
        return Frame(
            time=now.isoformat(timespec="seconds"),
            run_id=run.run_id,
            state=run.state,
            attempt=newest.record.attempt,
            maximum_attempts=definition.maximum_attempts if definition else None,
            job_name=newest.record.job_name,
            phase=newest.secondary or newest.status or newest.record.waits or "not submitted yet",
            step=step,
            steps=steps,
            metrics=dict(self._metrics),
            checkpoint_step=max(0, progress.last_complete_step) if progress else 0,
            checkpoint_age_seconds=_age(progress, now),
            eta_seconds=None
            if ended or step is None or steps is None or seconds is None
            else max(0, steps - step) * seconds,
            spend_usd=run.usd,
            ceiling_usd=_ceiling(definition) if definition else None,
            last_event=self._event,
            ended=ended,
            message=run.message or newest.reason,
        )


def _ceiling(definition: JobDefinition) -> float | None:
    if definition.max_cost_usd is not None:
        return definition.max_cost_usd
    worst: float | None = cost_of(definition)["worst_case_usd"]
    return worst


def _of_progress(progress: Progress) -> dict[str, float]:
    values = {**progress.metrics, "step": float(progress.step), "tokens": float(progress.tokens)}
    return values | ({} if progress.loss is None else {"loss": progress.loss})


def _train_steps(run: Mapping[str, Any]) -> int:
    return -(-int(run["train_tokens"]) // int(run["recipe"]["global_batch_tokens"]))


def _age(progress: Progress | None, now: datetime) -> float | None:
    if progress is None or progress.checkpointed_at is None:
        return None
    return max(0.0, (now - datetime.fromisoformat(progress.checkpointed_at)).total_seconds())


def _record(text: str) -> Mapping[str, Any]:
    if not text.startswith("{"):
        return {}
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, Mapping) else {}

"""The controller's table as the command line reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.cli.errors import AwsRefusedError, CommandError
from cdk_blackwell.deployed.definition import store_of
from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.items import UnreadableItemError
from cdk_blackwell.lifecycle.handler.records import Attempt
from cdk_blackwell.lifecycle.handler.resume import counts
from cdk_blackwell.lifecycle.handler.store import Store

NAMED: Final = 10
"""So many runs are named to whoever asks for one that there is not."""


@dataclass(frozen=True, kw_only=True)
class AttemptFacts:
    """One attempt: the controller's record and SageMaker's word."""

    record: Attempt
    status: str
    """SageMaker's status, else the table's; empty before SageMaker took it."""
    secondary: str
    reason: str
    billed_seconds: float
    """Per instance; runs on while the attempt trains."""
    usd: float | None
    """Of all instances; None without a price."""


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """One run and its attempts, oldest first."""

    run_id: str
    state: str
    message: str
    definition: JobDefinition | None
    """None when another version of this library froze it unreadably."""
    attempts: tuple[AttemptFacts, ...]

    @property
    def started(self) -> float:
        """When its first attempt was claimed, seconds since the epoch."""
        return self.attempts[0].record.claimed_at

    @property
    def usd(self) -> float | None:
        """Spent so far; None without a price."""
        costs = [attempt.usd for attempt in self.attempts if attempt.usd is not None]
        return sum(costs) if costs else None

    @property
    def counted_attempts(self) -> int:
        """Attempts that ``max_attempts`` counts: not those that got no instances."""
        return sum(counts(each.record.cause, trained=each.record.trained) for each in self.attempts)

    @property
    def newest(self) -> AttemptFacts:
        """The attempt that counts now."""
        return self.attempts[-1]


def read_runs(
    aws: Aws, job: DeployedJob, run_id: str | None = None, *, limit: int | None = None
) -> list[RunFacts]:
    """The newest ``limit`` runs of a job, or all; the newest first, or the one asked for.

    SageMaker is asked about every attempt, so only about those of the runs that are given.
    """
    store = store_of(aws, job)
    newest = _by_run(store, run_id)[:limit]
    return [_run(aws, store, each[0].owner, each[0].run_id, each) for each in newest]


def _by_run(store: Store, run_id: str | None = None) -> list[list[Attempt]]:
    """Attempts of each run, oldest first; the newest run first."""
    by_run: dict[tuple[str, str], list[Attempt]] = {}
    with _refusal_of_unreadable():
        attempts = store.attempts(run_id=run_id)
    for attempt in attempts:
        by_run.setdefault((attempt.owner, attempt.run_id), []).append(attempt)
    return sorted(by_run.values(), key=lambda attempts: -attempts[0].claimed_at)


@contextmanager
def _refusal_of_unreadable() -> Iterator[None]:
    try:
        yield
    except UnreadableItemError as error:
        raise AwsRefusedError(str(error)) from error


def find_run(aws: Aws, job: DeployedJob, run_id: str | None) -> RunFacts:
    """The run asked for, or the newest; CommandError when there is none."""
    runs = read_runs(aws, job, run_id, limit=1)
    if runs:
        return runs[0]
    if run_id is None:
        raise CommandError(
            f"job {job.output.job!r} has no run yet: 'cdk-blackwell start RUN_ID {job.words}' "
            "launches one"
        )
    known = [repr(attempts[0].run_id) for attempts in _by_run(store_of(aws, job))]
    named = ", ".join(known[:NAMED]) + (" and older ones" if len(known) > NAMED else "")
    raise CommandError(f"job {job.output.job!r} has no run {run_id!r}; it has {named or 'none'}")


def iso(seconds: float) -> str:
    """ISO 8601, UTC, to the second."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")


def _run(aws: Aws, store: Store, owner: str, run_id: str, records: Sequence[Attempt]) -> RunFacts:
    with _refusal_of_unreadable():
        run = store.run(owner, run_id)
    definition = None
    if run is not None:
        try:
            definition = run.definition
        except ValueError:
            definition = None  # The history of a run must not end with an upgrade.
    return RunFacts(
        run_id=run_id,
        state=run.state if run else "unknown",
        message=run.message if run else "",
        definition=definition,
        attempts=tuple(_attempt(aws, record, definition) for record in records),
    )


def _attempt(aws: Aws, record: Attempt, definition: JobDefinition | None) -> AttemptFacts:
    seen = describe(aws, record.job_name) or {}
    # What was recorded outlives the job's record in SageMaker.
    seconds = billed_seconds(seen, datetime.now(UTC)) if seen else record.billed_seconds or 0.0
    price = definition.hourly_price_usd if definition else None
    return AttemptFacts(
        record=record,
        status=str(seen.get("TrainingJobStatus") or record.status),
        secondary=str(seen.get("SecondaryStatus") or ""),
        reason=str(record.reason or seen.get("FailureReason") or record.text or record.waits),
        billed_seconds=seconds,
        usd=None
        if price is None or definition is None
        else seconds / 3600 * definition.instance_count * price,
    )


def describe(aws: Aws, job_name: str) -> dict[str, Any] | None:
    """DescribeTrainingJob; None when SageMaker does not know the job."""
    try:
        answer: dict[str, Any] = aws.client("sagemaker").describe_training_job(
            TrainingJobName=job_name
        )
    except ClientError as error:
        said = error.response["Error"]
        if said["Code"] == "ResourceNotFound" or "not found" in said.get("Message", "").lower():
            return None
        raise
    return answer


def billed_seconds(seen: Mapping[str, Any], now: datetime) -> float:
    """Per instance: BillableTimeInSeconds once SageMaker knows it, else since training began."""
    billable = seen.get("BillableTimeInSeconds")
    if billable is not None:
        return float(billable)
    began = seen.get("TrainingStartTime")
    if began is None:
        return 0.0
    ended = seen.get("TrainingEndTime") or now
    return max(0.0, float((ended - began).total_seconds()))

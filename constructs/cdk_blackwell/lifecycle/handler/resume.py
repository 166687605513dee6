"""What follows when an attempt ends: a table from what SageMaker said to an action.

Pure. Two bounds stand above the table: the number of attempts, and progress, because a job that
costs over a hundred dollars an hour must not repeat a failure for ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdk_blackwell.lifecycle.handler.budget import MINIMUM_ATTEMPT_SECONDS
from cdk_blackwell.lifecycle.handler.jobs import Observation
from cdk_blackwell.lifecycle.handler.records import Action, Cause, RunState
from cdk_blackwell.planning.contracts import Failure, FailureClass


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One row: matches by every field that is not None."""

    status: str
    secondary: str | None = None
    failure: FailureClass | None = None
    """Class in the trainer's own failure text."""
    reason: str | None = None
    """Regular expression searched for in SageMaker's words, ignoring case."""
    cause: Cause


RULES: Final = (
    Rule(status="Completed", cause="completed"),
    Rule(status="Deleting", cause="deleted"),
    Rule(status="Stopped", secondary="MaxRuntimeExceeded", cause="run_time_used_up"),
    Rule(status="Stopped", secondary="MaxWaitTimeExceeded", cause="waiting_time_used_up"),
    Rule(status="Failed", secondary="MaxRuntimeExceeded", cause="run_time_used_up"),
    Rule(status="Failed", secondary="MaxWaitTimeExceeded", cause="waiting_time_used_up"),
    Rule(
        status="Stopped",
        reason=r"training ?plan|reserved capacity.{0,40}(end|expir)",
        cause="plan_ended",
    ),
    Rule(status="Stopped", reason=r"MaxPendingTime|pending time", cause="pending_too_long"),
    Rule(status="Stopped", cause="stopped_by_a_person"),
    # The trainer knows best why it failed; SageMaker puts its own words before that text.
    Rule(status="Failed", failure="capacity", cause="capacity"),
    Rule(status="Failed", failure="internal", cause="trainer_fault"),
    Rule(status="Failed", failure="infrastructure", cause="infrastructure"),
    Rule(status="Failed", failure="out_of_memory", cause="out_of_memory"),
    Rule(status="Failed", failure="data", cause="data"),
    Rule(status="Failed", failure="user", cause="user"),
    Rule(
        status="Failed",
        reason=r"training ?plan.{0,60}(end|expir)|reserved capacity.{0,40}(end|expir)",
        cause="plan_ended",
    ),
    Rule(status="Failed", reason=r"MaxPendingTime|pending time", cause="pending_too_long"),
    Rule(status="Failed", reason=r"CapacityError|insufficient.?capacity", cause="capacity"),
    Rule(status="Failed", reason=r"InternalServerError|internal error", cause="internal"),
    # Killed from outside before the launcher could write a reason.
    Rule(status="Failed", reason=r"exit code:? ?(137|143)\b", cause="infrastructure"),
    Rule(status="Failed", reason=r"AlgorithmError|ClientError", cause="user"),
    Rule(status="Failed", cause="unknown"),
)
"""First match counts. Prefixes of FailureReason are those in common use, not documented ones."""


@dataclass(frozen=True, kw_only=True)
class Consequence:
    """What a cause leads to."""

    action: Action
    state: RunState
    """State of the run when it is not resubmitted."""
    text: str
    """What happened and what a person can do."""


CONSEQUENCES: Final[dict[Cause, Consequence]] = {
    "completed": Consequence(
        action="finish", state="completed", text="The run completed. Nothing is left to do."
    ),
    "stopped_by_us": Consequence(
        action="finish",
        state="stopped",
        text="The run was stopped as asked. Its checkpoints stay in S3.",
    ),
    "stopped_by_a_person": Consequence(
        action="finish",
        state="stopped",
        text="The job was stopped outside this stack, or by a limit SageMaker did not name. "
        "It is not resubmitted; its checkpoints stay in S3.",
    ),
    "deleted": Consequence(
        action="finish",
        state="stopped",
        text="The training job's record was deleted in SageMaker. It is not resubmitted.",
    ),
    "run_time_used_up": Consequence(
        action="stop",
        state="stopped",
        text="The attempt reached max_runtime, the longest one attempt may take (a run may take "
        "max_runtime times max_attempts). It is not resubmitted; its checkpoints stay in S3. Raise "
        "max_runtime for the next run.",
    ),
    "waiting_time_used_up": Consequence(
        action="stop",
        state="stopped",
        text="The job reached its longest waiting time for spot capacity. Its checkpoints stay in "
        "S3. Raise the waiting time, or use another kind of capacity.",
    ),
    "pending_too_long": Consequence(
        action="stop",
        state="stopped",
        text="No capacity came within the longest pending time. Raise it, choose another "
        "Availability Zone, or reserve a training plan.",
    ),
    "plan_ended": Consequence(
        action="stop",
        state="stopped",
        text="The training plan's time is over. Its checkpoints stay in S3. Extend the plan or "
        "buy another, then launch a new run.",
    ),
    "capacity": Consequence(
        action="resubmit", state="failed", text="There was no capacity for the job."
    ),
    "internal": Consequence(
        action="resubmit", state="failed", text="SageMaker had an internal error."
    ),
    "trainer_fault": Consequence(
        action="resubmit",
        state="failed",
        text="The trainer reported an internal fault, which may or may not pass by itself. If it "
        "comes again, read the reason and the log.",
    ),
    "infrastructure": Consequence(
        action="resubmit", state="failed", text="Hardware or a host failed."
    ),
    "out_of_memory": Consequence(
        action="stop",
        state="failed",
        text="A GPU ran out of memory. Lower micro_batch_size or checkpoint more activations, "
        "then launch a new run.",
    ),
    "data": Consequence(
        action="stop",
        state="failed",
        text="The dataset is damaged or does not fit the run. Make it again with prepare_data.py, "
        "then launch a new run.",
    ),
    "user": Consequence(
        action="stop",
        state="failed",
        text="The training script or the job's configuration failed. Read the reason and the log, "
        "correct it, then launch a new run.",
    ),
    "unknown": Consequence(
        action="stop",
        state="failed",
        text="The job failed for a reason that is not known to pass by itself. Read the log, then "
        "launch a new run.",
    ),
}


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What to do about an ended attempt."""

    cause: Cause
    action: Action
    state: RunState
    text: str


def find_cause(seen: Observation) -> Cause:
    """First matching row of the table for a terminal observation."""
    failure = Failure.find(seen.reason)
    for rule in RULES:
        if (
            rule.status == seen.status
            and rule.secondary in (None, seen.secondary)
            and rule.failure in (None, failure.kind if failure else None)
            and (rule.reason is None or re.search(rule.reason, seen.reason, re.IGNORECASE))
        ):
            return rule.cause
    raise ValueError(f"{seen.job_name} has not ended: status {seen.status!r}")


def useless_attempts(steps: Sequence[int]) -> int:
    """How many attempts at the end of ``steps`` left no newer complete checkpoint than before.

    ``steps`` holds the newest complete step at the end of each attempt that reached training, first
    attempt first. One that never did, for want of capacity say, could not have made progress and
    says nothing about the run.
    """
    count, best = 0, 0
    for step in steps:
        count = 0 if step > best else count + 1
        best = max(best, step)
    return count


MAXIMUM_USELESS_ATTEMPTS: Final = 2


def decide(
    seen: Observation,
    *,
    wanted: bool,
    attempt: int,
    maximum_attempts: int,
    steps: Sequence[int],
    affordable_seconds: float,
) -> Decision:
    """What follows from the end of attempt number ``attempt`` (from 1).

    ``wanted``: whether the run should still be running; ``steps``: as for `useless_attempts`, this
    attempt last if it reached training; ``affordable_seconds``: run time that the money left pays
    for.
    """
    cause = _cause(seen, wanted)
    consequence = CONSEQUENCES[cause]
    action, text = consequence.action, consequence.text
    if action == "resubmit":
        if useless_attempts(steps) >= MAXIMUM_USELESS_ATTEMPTS:
            action = "stop"
            text += (
                f" The last {MAXIMUM_USELESS_ATTEMPTS} attempts that reached training left no new "
                f"complete checkpoint (still at step {max(steps)}), so it is not resubmitted. Find "
                "the reason, or shorten the checkpoint interval, then launch a new run."
            )
        elif attempt >= maximum_attempts:
            action = "stop"
            text += (
                f" All {maximum_attempts} attempts are used, so it is not resubmitted. Raise "
                "max_attempts, then launch a new run."
            )
        elif affordable_seconds < MINIMUM_ATTEMPT_SECONDS:
            action = "stop"
            text += (
                " What is left of max_cost_usd does not pay for another attempt of at least "
                f"{MINIMUM_ATTEMPT_SECONDS / 60:.0f} minutes with its stop and upload. It is not "
                "resubmitted; its checkpoints stay in S3. Raise max_cost_usd, then launch again."
            )
        else:
            text += (
                f" It is resubmitted as attempt {attempt + 1} of {maximum_attempts} and "
                f"{_beginning(max(steps, default=0))}."
            )
    return Decision(cause=cause, action=action, state=consequence.state, text=text)


def decide_unreadable(seen: Observation, *, wanted: bool, why: str) -> Decision:
    """What follows when the run's frozen definition cannot be read: never another attempt."""
    cause = _cause(seen, wanted)
    consequence = CONSEQUENCES[cause]
    if consequence.action != "resubmit":
        return Decision(
            cause=cause,
            action=consequence.action,
            state=consequence.state,
            text=consequence.text,
        )
    return Decision(
        cause=cause,
        action="stop",
        state=consequence.state,
        text=f"{consequence.text} {why} So it is not resubmitted; its checkpoints stay in S3.",
    )


def _cause(seen: Observation, wanted: bool) -> Cause:
    cause = find_cause(seen)
    return cause if wanted or cause == "completed" else "stopped_by_us"


def _beginning(step: int) -> str:
    if step == 0:
        return "begins again, because there is no complete checkpoint yet"
    return f"resumes from the newest complete checkpoint (step {step})"

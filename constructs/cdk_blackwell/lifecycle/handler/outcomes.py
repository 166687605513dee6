"""Why an attempt ended and what follows: the whole table, as data.

``docs/life-of-a-run.md`` is made of it. `resume.py` applies it, below three bounds of its own;
`run_time.py` tells apart what cut a run time short.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdk_blackwell.lifecycle.handler.records import Action, Cause, RunState
from cdk_blackwell.planning.contracts import NO_SMALLER_BATCH, FailureClass


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
    Rule(
        status="Failed",
        failure="out_of_memory",
        reason=NO_SMALLER_BATCH,
        cause="no_smaller_batch",
    ),
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
        text="The attempt reached max_runtime, which is a limit and no failure: the run is not "
        "resubmitted, however many attempts are left. Its checkpoints stay in S3. Give the next "
        "run a max_runtime above what its plan predicts.",
    ),
    "money_used_up": Consequence(
        action="stop",
        state="stopped",
        text="The attempt used up the run time that was left of max_cost_usd. The run is not "
        "resubmitted; its checkpoints stay in S3. Raise max_cost_usd for the next run.",
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
        text="The training plan's time, or its block of time, is over. Its checkpoints stay in S3. "
        "Launch a new run in the plan's next block, or extend the plan or buy another.",
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
        action="resubmit",
        state="failed",
        text="A GPU ran out of memory. The trainer left a lower limit for its micro-batch beside "
        "the checkpoints.",
    ),
    "no_smaller_batch": Consequence(
        action="stop",
        state="failed",
        text="A GPU ran out of memory with the smallest micro-batch. Use more GPUs, shorter "
        "sequences or more activation checkpointing, then launch a new run.",
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

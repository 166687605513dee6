"""What follows when an attempt ends: the table of `outcomes.py`, applied.

Pure. Three bounds stand above the table: the number of attempts, progress and money, because a job
that costs over a hundred dollars an hour must not repeat a failure for ever.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdk_blackwell.lifecycle.handler.budget import MINIMUM_ATTEMPT_SECONDS
from cdk_blackwell.lifecycle.handler.jobs import Observation
from cdk_blackwell.lifecycle.handler.outcomes import CONSEQUENCES, RULES
from cdk_blackwell.lifecycle.handler.records import Action, Cause, RunState, ordinal
from cdk_blackwell.planning.contracts import Failure


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

CAPACITY_PAUSE_SECONDS: Final = (300.0, 600.0, 1_200.0, 2_400.0, 3_600.0)
"""Before the next attempt after so many in a row that got no capacity; the last one repeats. The
attempts of a run are few, and capacity that is gone is seldom back at once. This project's choice.
"""


def pause_seconds(causes: Sequence[Cause]) -> float:
    """How long the next attempt waits after attempts that ended for ``causes``, oldest first."""
    row = capacity_row(causes)
    return CAPACITY_PAUSE_SECONDS[min(row, len(CAPACITY_PAUSE_SECONDS)) - 1] if row else 0.0


def capacity_row(causes: Sequence[Cause]) -> int:
    """How many attempts at the end of ``causes`` ended for want of capacity, one after another."""
    others = [index for index, cause in enumerate(causes) if cause != "capacity"]
    return len(causes) - 1 - others[-1] if others else len(causes)


def counts(cause: Cause, *, trained: bool) -> bool:
    """Whether an attempt is one of ``max_attempts``: not if it got no instances, and cost nothing.

    Waiting for capacity has a limit of its own, the longest pending time.
    """
    return trained or cause != "capacity"


def decide(
    seen: Observation,
    *,
    wanted: bool,
    attempt: int,
    maximum_attempts: int,
    steps: Sequence[int],
    affordable_seconds: float,
    causes: Sequence[Cause] = (),
    uncounted: int = 0,
    without_capacity_seconds: float = 0.0,
    longest_delay_seconds: float = float("inf"),
    least_seconds: float = MINIMUM_ATTEMPT_SECONDS,
    trial: bool = False,
    cause: Cause | None = None,
) -> Decision:
    """What follows from the end of attempt number ``attempt`` (from 1).

    ``wanted``: whether the run should still be running; ``steps``: as for `useless_attempts`, this
    attempt last if it reached training; ``affordable_seconds``: run time that the money left pays
    for; ``causes``: why the earlier attempts ended; ``uncounted``: how many of them never reached
    an instance, for which time is the limit: ``without_capacity_seconds``, since when attempts in a
    row got no capacity, of at most ``longest_delay_seconds``; ``least_seconds``: of run time that
    are worth an attempt; ``trial``: a trial has one attempt; ``cause``: why it ended, where more is
    known than the table says.
    """
    cause = _cause(cause or find_cause(seen), wanted)
    used = attempt - uncounted - (not counts(cause, trained=seen.trained))
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
        elif cause == "out_of_memory" and "out_of_memory" in causes:
            action = "stop"
            text = (
                "A GPU ran out of memory for the second time, with a smaller micro-batch. It is "
                "not resubmitted. Lower micro_batch_size or checkpoint more activations, then "
                "launch a new run."
            )
        elif cause == "capacity" and without_capacity_seconds >= longest_delay_seconds:
            action = "stop"
            text += (
                f" That is so for {without_capacity_seconds / 3600:.1f} hours, and the run waits "
                f"for capacity for at most {longest_delay_seconds / 3600:g}. Choose another "
                "Availability Zone, or reserve a training plan."
            )
        elif trial:
            action = "stop"
            text += " A trial has one attempt, so it is not resubmitted. Start another trial."
        elif used >= maximum_attempts:
            action = "stop"
            text += (
                f" All {maximum_attempts} attempts are used, so it is not resubmitted. Raise "
                "max_attempts, then launch a new run."
            )
        elif affordable_seconds < least_seconds:
            action = "stop"
            text += (
                " What is left of max_cost_usd does not pay for another attempt of at least "
                f"{least_seconds / 60:.0f} minutes with its stop and upload. It is not "
                "resubmitted; its checkpoints stay in S3. Raise max_cost_usd, then launch again."
            )
        else:
            pause = pause_seconds([*causes, cause])
            after = f" after {pause / 60:.0f} minutes" if pause else ""
            following = ordinal(attempt + 1, maximum_attempts)
            text += (
                f" It is resubmitted{after} as attempt {following} and "
                f"{_beginning(max(steps, default=0))}."
            )
    return Decision(cause=cause, action=action, state=consequence.state, text=text)


def decide_unreadable(seen: Observation, *, wanted: bool, why: str) -> Decision:
    """What follows when the run's frozen definition cannot be read: never another attempt."""
    cause = _cause(find_cause(seen), wanted)
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


def _cause(cause: Cause, wanted: bool) -> Cause:
    return cause if wanted or cause == "completed" else "stopped_by_us"


def _beginning(step: int) -> str:
    if step == 0:
        return "begins again, because there is no complete checkpoint yet"
    return f"resumes from the newest complete checkpoint (step {step})"

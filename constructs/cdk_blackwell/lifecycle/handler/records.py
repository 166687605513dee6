"""What the table holds, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Literal

from cdk_blackwell.lifecycle.handler.clock import utc
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.planning.contracts import stack_tag

Desired = Literal["running", "stopped", "deleted"]
RunState = Literal["running", "completed", "failed", "stopped", "refused"]
AttemptState = Literal["claimed", "submitted", "ended"]
Action = Literal["resubmit", "finish", "stop"]
Kind = Literal["create", "launch", "remove", "roll_back"]
Cause = Literal[
    "completed",
    "stopped_by_us",
    "stopped_by_a_person",
    "deleted",
    "run_time_used_up",
    "money_used_up",
    "waiting_time_used_up",
    "pending_too_long",
    "plan_ended",
    "capacity",
    "internal",
    "trainer_fault",
    "infrastructure",
    "out_of_memory",
    "no_smaller_batch",
    "data",
    "user",
    "unknown",
]
"""Why an attempt ended."""


class Claim(Enum):
    """Outcome of asking for the right to launch an attempt."""

    WON = "won"
    TAKEN = "the attempt or the run exists already"
    NOT_DESIRED = "the desired state does not allow it"


@dataclass(frozen=True, kw_only=True)
class Transition:
    """The newest change of ``RunId`` by CloudFormation, and what was decided about it."""

    by: str
    """RequestId of the event."""
    before: str | None
    after: str | None
    kind: Kind


@dataclass(frozen=True, kw_only=True)
class Owner:
    """One custom resource: its definition and what it wants running."""

    owner: str
    stack_id: str
    definition: str
    """JSON of the JobDefinition last deployed, empty when none was."""
    desired: Desired
    run_id: str | None
    """The current run: the only one that ``desired == running`` speaks of."""
    changed_at: float
    transition: Transition | None

    def wants(self, run_id: str) -> bool:
        """Whether an attempt of this run should be alive."""
        return self.desired == "running" and self.run_id == run_id


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run, with the definition frozen at its launch."""

    owner: str
    run_id: str
    frozen: str
    """The definition's JSON."""
    state: RunState
    message: str

    @cached_property
    def definition(self) -> JobDefinition:
        """ValueError when another version of this library froze it in a way this one can't read."""
        return JobDefinition.from_json(self.frozen)


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One claim of a training job's name."""

    job_name: str
    owner: str
    stack_id: str
    run_id: str
    attempt: int
    """Counts from 1."""
    state: AttemptState
    claimed_at: float
    requester: str
    """Id of the event or invocation that claimed it; its repetitions may continue the launch."""
    held_until: float
    """Until then a job may come of the claim: Lambda lets nobody who took it up live longer."""
    earlier_until: float = 0.0
    """The same of whoever held it before the reader took it up and never let go; not stored."""
    due: float
    """It is not brought to SageMaker before then, seconds since the epoch."""
    delay: str
    """Why SageMaker did not take it yet, empty when it never said so."""
    status: str
    cause: Cause
    reason: str
    text: str
    """What happened and what follows, for people; empty before the end."""
    last_complete_step: int
    """Recorded when the attempt ended; 0 before."""
    trained: bool
    """Whether it reached training, recorded when it ended; True where that is not known."""
    billed_seconds: float | None
    """Per instance, recorded when it ended; None where SageMaker did not say."""
    action: Action | None
    """Decided when the attempt ended."""
    done: bool
    """Whether the action was carried out or handed to the next claim."""

    @property
    def job(self) -> str:
        """Prefix of the job's names, without the definition that may be unreadable."""
        return self.job_name.split(f"-{stack_tag(self.stack_id)}-", 1)[0]

    @property
    def waits(self) -> str:
        """What it waits for before it is a job, for people; empty where nothing is known."""
        if self.state != "claimed":
            return ""
        if self.delay:
            return f"SageMaker did not take it yet: {self.delay}"
        return f"waits until {utc(self.due)}" if self.due else ""

    @property
    def first(self) -> bool:
        """Whether it launches the run, rather than going on with it."""
        return self.attempt == 1

    @property
    def claim(self) -> str:
        """Mark of this claim on the files that it freezes."""
        return f"{self.owner}/{self.requester}"

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do about it."""
        return self.state == "ended" and self.done


def ordinal(attempt: int, maximum: int) -> str:
    """``2 of 3``; beyond ``max_attempts``, since those without instances do not count, ``4``."""
    return f"{attempt} of {maximum}" if attempt <= maximum else f"{attempt}"

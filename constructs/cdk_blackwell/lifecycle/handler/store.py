"""The controller's memory: what should run, what did, and who may launch.

Partitions: ``owner`` (definition and desired state of a custom resource), ``run`` (frozen
definition and outcome), ``attempt`` (claims by job name). Nothing is remembered elsewhere. A claim
is one transaction with the desired state, so that after a stop or a tombstone none can be won.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from cdk_blackwell.lifecycle.handler.items import (
    UnreadableItemError,
    read,
    read_attempt,
    read_owner,
    read_run,
)
from cdk_blackwell.lifecycle.handler.permissions import FUNCTION_TIMEOUT_SECONDS
from cdk_blackwell.lifecycle.handler.records import (
    Action,
    Attempt,
    Cause,
    Claim,
    Owner,
    Run,
    RunState,
    Transition,
)
from cdk_blackwell.lifecycle.handler.table import CONDITION_FAILED, Table, milliseconds, seconds

OWNER: Final = "owner"
RUN: Final = "run"
ATTEMPT: Final = "attempt"

HOLD_SECONDS: Final = FUNCTION_TIMEOUT_SECONDS + 60.0
"""Longer than any invocation of the function lives, by more than two hosts' clocks differ."""


@dataclass(frozen=True, kw_only=True)
class Store:
    """All reads and writes."""

    table: Table

    # --- Owners ----------------------------------------------------------------------------------

    def owner(self, owner: str) -> Owner | None:
        """One custom resource, None before its first event."""
        item = self.table.get(OWNER, owner)
        return None if item is None else read(read_owner, item)

    def owners(self) -> tuple[Owner, ...]:
        """Every custom resource this controller knows, the latest changed first."""
        found = [read(read_owner, item) for item in self.table.query(OWNER)]
        return tuple(sorted(found, key=lambda owner: -owner.changed_at))

    def record_definition(self, owner: str, *, stack_id: str, definition: str) -> bool:
        """Keep the deployed definition; False when the tombstone forbids it."""
        return self.table.update(
            OWNER,
            owner,
            "SET job_definition = :d, stack_id = :s, changed_at = :t, "
            "desired = if_not_exists(desired, :stopped)",
            {":d": definition, ":s": stack_id, ":t": self.table.now(), ":stopped": "stopped"},
            condition="attribute_not_exists(desired) OR desired <> :deleted",
            extra={":deleted": "deleted"},
        )

    def revive(self, owner: str, *, request_started: float) -> bool:
        """Lift a tombstone that is older than the event which creates the resource again."""
        return self.table.update(
            OWNER,
            owner,
            "SET desired = :stopped REMOVE run_id, transition",
            {":stopped": "stopped"},
            condition="desired = :deleted AND changed_at < :started",
            extra={":deleted": "deleted", ":started": milliseconds(request_started)},
        )

    def record_transition(self, owner: str, transition: Transition) -> None:
        """Keep the newest change of ``RunId``."""
        value = {
            "by": transition.by,
            "before": transition.before,
            "after": transition.after,
            "kind": transition.kind,
        }
        self.table.update(OWNER, owner, "SET transition = :x", {":x": value})

    def stop_run(self, owner: str, run_id: str) -> bool:
        """Want this run stopped; False when it was not the one wanted running."""
        return self.table.update(
            OWNER,
            owner,
            "SET desired = :stopped",
            {":stopped": "stopped"},
            condition="desired = :running AND run_id = :r",
            extra={":running": "running", ":r": run_id},
        )

    def bury(self, owner: str, *, stack_id: str) -> None:
        """Write the tombstone: from here on no claim of this owner can be won."""
        self.table.update(
            OWNER,
            owner,
            "SET desired = :deleted, stack_id = :s, changed_at = :t",
            {":deleted": "deleted", ":s": stack_id, ":t": self.table.now()},
        )

    # --- Runs and attempts -----------------------------------------------------------------------

    def run(self, owner: str, run_id: str) -> Run | None:
        """One run, None when it never claimed an attempt."""
        item = self.table.get(RUN, f"{owner}#{run_id}")
        return None if item is None else read(read_run, item)

    def set_run_state(self, owner: str, run_id: str, state: RunState, message: str) -> None:
        """Record a run's outcome."""
        self.table.update(
            RUN,
            f"{owner}#{run_id}",
            "SET run_state = :x, message = :m",
            {":x": state, ":m": message},
        )

    def attempt(self, job_name: str) -> Attempt | None:
        """The claim of a training job's name, None when the name is not ours."""
        item = self.table.get(ATTEMPT, job_name)
        return None if item is None else read(read_attempt, item)

    def attempts(self, owner: str | None = None, run_id: str | None = None) -> tuple[Attempt, ...]:
        """Claims in the order of their attempts, of one owner and one run where given.

        UnreadableItemError for one that cannot be read and may be among them.
        """

        def may_be_asked_for(item: Mapping[str, Any]) -> bool:
            of_owner = owner in (None, item.get("owner", owner))
            return of_owner and run_id in (None, item.get("run_id", run_id))

        items = [item for item in self.table.query(ATTEMPT) if may_be_asked_for(item)]
        found = [read(read_attempt, item) for item in items]
        return tuple(
            sorted(
                (
                    attempt
                    for attempt in found
                    if owner in (None, attempt.owner) and run_id in (None, attempt.run_id)
                ),
                key=lambda attempt: (attempt.claimed_at, attempt.attempt),
            )
        )

    def readable_attempts(
        self, owner: str | None = None
    ) -> tuple[list[Attempt], list[UnreadableItemError]]:
        """Every claim, of one owner where given, and all that cannot be read as one."""
        found, errors = [], []
        for item in self.table.query(ATTEMPT):
            try:
                attempt = read(read_attempt, item)
                if owner in (None, attempt.owner):
                    found.append(attempt)
            except UnreadableItemError as error:
                errors.append(error)
        return found, errors

    def claim_first(
        self, owner: Owner, *, run_id: str, job_name: str, definition: str, requester: str
    ) -> Claim:
        """Make ``run_id`` the current run and claim its first attempt, all or nothing."""
        run = {"owner": owner.owner, "run_id": run_id, "job_definition": definition}
        run |= {"run_state": "running", "message": ""}
        return self._claim(
            {
                "Update": self.table.operation(
                    OWNER,
                    owner.owner,
                    UpdateExpression="SET desired = :running, run_id = :r",
                    ConditionExpression="desired = :stopped OR "
                    "(desired = :running AND run_id = :r)",
                    values={":running": "running", ":stopped": "stopped", ":r": run_id},
                )
            },
            self.table.put_new(
                RUN, f"{owner.owner}#{run_id}", run, replaceable=("run_state", "refused")
            ),
            self._put_attempt(owner, run_id, 1, job_name, requester),
        )

    def claim_next(
        self, owner: Owner, previous: Attempt, *, job_name: str, requester: str, due: float = 0.0
    ) -> Claim:
        """Claim the attempt after ``previous`` and hand its pending action over, all or nothing.

        One that is due later is held by nobody until then.
        """
        return self._claim(
            {
                "ConditionCheck": self.table.operation(
                    OWNER,
                    owner.owner,
                    ConditionExpression="desired = :running AND run_id = :r",
                    values={":running": "running", ":r": previous.run_id},
                )
            },
            self._put_attempt(
                owner, previous.run_id, previous.attempt + 1, job_name, requester, due=due
            ),
            {
                "Update": self.table.operation(
                    ATTEMPT,
                    previous.job_name,
                    UpdateExpression="SET done = :true",
                    values={":true": True},
                )
            },
        )

    def wants(self, attempt: Attempt) -> bool:
        """Whether an attempt's job should be alive: its run is wanted now, its claim is known."""
        owner = self.owner(attempt.owner)
        wanted = owner is not None and owner.wants(attempt.run_id)
        return wanted and self.attempt(attempt.job_name) is not None

    def take_up(self, attempt: Attempt) -> Attempt | None:
        """Begin to bring a claim to SageMaker; None when somebody else did since it was read.

        Gives the claim as it is held now. ``held_until`` grows with every holder, so that it tells
        them apart, and whoever waits for it has waited for all of them.
        """
        seen = milliseconds(attempt.held_until)
        until = max(self.table.now() + milliseconds(HOLD_SECONDS), seen + 1)
        taken = self.table.update(
            ATTEMPT,
            attempt.job_name,
            "SET held_until = :until",
            {":until": until},
            condition="attempt_state = :claimed AND held_until = :seen",
            extra={":claimed": "claimed", ":seen": seen},
        )
        if not taken:
            return None
        return replace(attempt, held_until=seconds(until), earlier_until=attempt.held_until)

    def holds(self, held: Attempt) -> bool:
        """Whether a claim that was taken up is still its taker's."""
        now = self.attempt(held.job_name)
        return now is not None and (now.state, now.held_until) == ("claimed", held.held_until)

    def may_launch(self, held: Attempt) -> bool:
        """Whether the taker of a claim may bring it to SageMaker, as things are now."""
        owner = self.owner(held.owner)
        return owner is not None and owner.wants(held.run_id) and self.holds(held)

    def let_go(self, held: Attempt, *, seconds_more: float = 0.0, delay: str | None = None) -> None:
        """Give up a claim that was taken up, for whoever takes it up next.

        :param seconds_more: so long a call already made may still take effect.
        :param delay: why SageMaker did not take it yet. Default: as before.
        """
        # Who held it before and never let go may be alive all the same.
        until = max(held.earlier_until, self.table.clock.now() + seconds_more)
        self.table.update(
            ATTEMPT,
            held.job_name,
            "SET held_until = :until, delay = :r",
            {":until": milliseconds(until), ":r": held.delay if delay is None else delay},
            condition="attempt_state = :claimed AND held_until = :mine",
            extra={":claimed": "claimed", ":mine": milliseconds(held.held_until)},
        )

    def mark_submitted(self, job_name: str) -> None:
        """SageMaker has the job (unless it already ended and was recorded)."""
        self.table.update(
            ATTEMPT,
            job_name,
            "SET attempt_state = :submitted",
            {":submitted": "submitted"},
            condition="attempt_state = :claimed",
            extra={":claimed": "claimed"},
        )

    def record_end(
        self,
        attempt: Attempt,
        *,
        status: str,
        cause: Cause,
        reason: str,
        text: str,
        step: int,
        trained: bool,
        billed_seconds: float | None,
        action: Action,
    ) -> bool:
        """Record how an attempt ended and what follows; False when it was recorded before."""
        return self.table.update(
            ATTEMPT,
            attempt.job_name,
            "SET attempt_state = :ended, job_status = :s, cause = :c, reason = :r, "
            "outcome = :o, last_complete_step = :n, trained = :t, billed_ms = :b, "
            "next_action = :a, done = :false",
            {
                ":ended": "ended",
                ":s": status,
                ":c": cause,
                ":r": reason,
                ":o": text,
                ":n": step,
                ":t": trained,
                ":b": None if billed_seconds is None else milliseconds(billed_seconds),
                ":a": action,
                ":false": False,
            },
            condition="attempt_state <> :ended",
        )

    def mark_done(self, job_name: str) -> bool:
        """The action of an ended attempt was carried out; False when it already had been."""
        return self.table.update(
            ATTEMPT,
            job_name,
            "SET done = :true",
            {":true": True},
            condition="attempt_state = :ended AND done = :false",
            extra={":ended": "ended", ":false": False},
        )

    def release(self, held: Attempt) -> None:
        """Forget a claim that SageMaker refused its holder, so that the name stays usable."""
        self.table.delete(
            ATTEMPT,
            held.job_name,
            condition="attempt_state = :claimed AND held_until = :mine",
            values={":claimed": "claimed", ":mine": milliseconds(held.held_until)},
        )

    def _put_attempt(
        self,
        owner: Owner,
        run_id: str,
        attempt: int,
        job_name: str,
        requester: str,
        due: float = 0.0,
    ) -> dict[str, Any]:
        now = self.table.now()
        item = {
            "owner": owner.owner,
            "stack_id": owner.stack_id,
            "run_id": run_id,
            "attempt": attempt,
            "attempt_state": "claimed",
            "claimed_at": now,
            "held_until": now if due else now + milliseconds(HOLD_SECONDS),
            "due": milliseconds(due),
            "requester": requester,
        }
        return self.table.put_new(ATTEMPT, job_name, item)

    def _claim(self, desired: dict[str, Any], *others: dict[str, Any]) -> Claim:
        codes = self.table.transact([desired, *others])
        if CONDITION_FAILED in codes[1:]:
            return Claim.TAKEN
        return Claim.NOT_DESIRED if codes else Claim.WON

"""An attempt ended: record it once, then carry out what follows, once.

Used alike by job events and by the reconcile, so an event that never comes changes nothing but the
time it takes. Every step may be repeated after a crash: the end is recorded together with the
action, and the action is marked done, or handed to the next claim, by a conditional write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdk_blackwell.lifecycle.handler.budget import (
    affordable_seconds,
    billed,
    least_seconds,
)
from cdk_blackwell.lifecycle.handler.claims import go_on, resolve
from cdk_blackwell.lifecycle.handler.happenings import Happening
from cdk_blackwell.lifecycle.handler.jobs import Observation
from cdk_blackwell.lifecycle.handler.launch import billed_before, longest_delay_seconds
from cdk_blackwell.lifecycle.handler.messages import tell, unreadable
from cdk_blackwell.lifecycle.handler.outcomes import CONSEQUENCES
from cdk_blackwell.lifecycle.handler.records import Attempt, Cause, Claim, Owner, Run, RunState
from cdk_blackwell.lifecycle.handler.resume import (
    capacity_row,
    counts,
    decide,
    decide_unreadable,
    pause_seconds,
)
from cdk_blackwell.lifecycle.handler.run_time import cause_of_end
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.lifecycle.handler.trial import end_of_trial, is_trial
from cdk_blackwell.planning.contracts import training_job_name


def settle(services: Services, attempt: Attempt, seen: Observation, requester: str) -> None:
    """Treat the terminal observation ``seen`` of ``attempt``; repetitions do nothing."""
    owner = services.store.owner(attempt.owner)
    run = services.store.run(attempt.owner, attempt.run_id)
    if owner is None or run is None:
        raise RuntimeError(f"{attempt.job_name} is claimed but its run is not in the table")
    if attempt.state != "ended":
        _record(services, attempt, seen, owner, run)
    carry_out(services, attempt.job_name, owner, run, requester)


def carry_out(services: Services, job_name: str, owner: Owner, run: Run, requester: str) -> None:
    """Do what was decided when the attempt ended, unless it is done."""
    attempt = services.store.attempt(job_name)
    if attempt is None or attempt.state != "ended":
        return
    if attempt.action == "resubmit":
        _resubmit(services, attempt, owner, run, requester)
    elif not attempt.done:
        state = CONSEQUENCES[attempt.cause].state
        _end_run(services, attempt, run, state, attempt.text)


def _record(
    services: Services, attempt: Attempt, seen: Observation, owner: Owner, run: Run
) -> None:
    wanted = owner.wants(run.run_id)
    try:
        definition = run.definition
    except ValueError as error:
        # Nobody could resubmit it, so it must not be left waiting for that.
        step = 0
        decision = decide_unreadable(seen, wanted=wanted, why=unreadable(error))
    else:
        step = services.storage.last_complete_step(definition, run.run_id)
        before = [
            other
            for other in services.store.attempts(owner.owner, run.run_id)
            if other.attempt < attempt.attempt
        ]
        earlier = [other.last_complete_step for other in before if other.trained]
        paid = billed_before(services, definition, attempt)
        decision = decide(
            seen,
            wanted=wanted,
            attempt=attempt.attempt,
            maximum_attempts=definition.maximum_attempts,
            steps=[*earlier, step] if seen.trained else earlier,
            affordable_seconds=affordable_seconds(definition, [*paid, billed(definition, seen)]),
            causes=[other.cause for other in before],
            uncounted=sum(not counts(other.cause, trained=other.trained) for other in before),
            without_capacity_seconds=_without_capacity_seconds(services, [*before, attempt]),
            longest_delay_seconds=longest_delay_seconds(definition),
            least_seconds=least_seconds(definition),
            trial=is_trial(definition),
            cause=cause_of_end(definition, seen, paid),
        )
        if decision.cause == "completed" and is_trial(definition):
            decision = replace(decision, text=end_of_trial(definition, run.run_id))
    services.store.record_end(
        attempt,
        status=seen.status,
        cause=decision.cause,
        reason=seen.reason,
        step=step,
        trained=seen.trained,
        billed_seconds=seen.billed_seconds,
        action=decision.action,
        text=decision.text,
    )


def _resubmit(services: Services, attempt: Attempt, owner: Owner, run: Run, requester: str) -> None:
    name = training_job_name(
        job=attempt.job,
        stack_id=attempt.stack_id,
        run_id=run.run_id,
        attempt=attempt.attempt + 1,
    )
    claim = None
    if not attempt.done:
        pause = pause_seconds(_causes(services, attempt))
        claim = services.store.claim_next(
            owner,
            attempt,
            job_name=name,
            requester=requester,
            due=services.clock.now() + pause if pause else 0.0,
        )
        if claim is Claim.NOT_DESIRED:
            consequence = CONSEQUENCES["stopped_by_us"]
            _end_run(services, attempt, run, consequence.state, consequence.text)
            return
    following = services.store.attempt(name)
    if following is None:
        return
    if claim is Claim.WON and following.due:
        tell(services, following, "waits to be resubmitted", attempt.text)
    elif claim is Claim.WON:
        go_on(services, following)
    else:
        resolve(services, following, requester)


def _causes(services: Services, attempt: Attempt) -> list[Cause]:
    """Why this attempt and those before it ended, oldest first."""
    known = services.store.attempts(attempt.owner, attempt.run_id)
    return [each.cause for each in known if each.attempt <= attempt.attempt]


def _without_capacity_seconds(services: Services, attempts: Sequence[Attempt]) -> float:
    """Since when attempts in a row got no capacity, should the last of them have got none."""
    row = capacity_row([each.cause for each in attempts[:-1]]) + 1
    return services.clock.now() - attempts[-row].claimed_at


def _end_run(services: Services, attempt: Attempt, run: Run, state: RunState, text: str) -> None:
    services.store.set_run_state(run.owner, run.run_id, state, text)
    services.store.stop_run(run.owner, run.run_id)
    # Told first: who crashes in between tells it again, which is better than never. A topic that
    # takes no message is tried at every sweep, but other systems need not hear of it as often.
    if tell(services, attempt, _happening(state), text, announce=run.state != state):
        services.store.mark_done(attempt.job_name)


def _happening(state: RunState) -> Happening:
    """How an ended run is told of; one that runs or was refused does not end here."""
    if state == "completed" or state == "failed" or state == "stopped":
        return state
    raise ValueError(f"a run that is {state} has not ended")

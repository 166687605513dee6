"""Launching an attempt: claim, freeze, create, look again.

The order is the safety. The claim is won in one transaction with the desired state; the claim's
holder alone freezes the run's files and calls CreateTrainingJob; and after the call the desired
state is read again, so that a stop or a delete which came in between finds its job stopped.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any, Final

from cdk_blackwell.lifecycle.handler.budget import (
    affordable_seconds,
    billed,
    least_seconds,
)
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.errors import LaunchDelayed, LaunchRefused, LaunchUnwanted
from cdk_blackwell.lifecycle.handler.happenings import Happening
from cdk_blackwell.lifecycle.handler.messages import tell, unreadable
from cdk_blackwell.lifecycle.handler.records import Attempt, Claim, Owner, Run, RunState, ordinal
from cdk_blackwell.lifecycle.handler.request import render_request
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.lifecycle.handler.training_plan import plan_arn, seconds_left
from cdk_blackwell.planning.contracts import training_job_name

PENDING_SECONDS: Final = 12 * 3600.0
"""How long a resubmission may be put off where the request has no MaxPendingTimeInSeconds."""
EFFECT_SECONDS: Final = 300.0
"""So long a call whose answer was lost may still take effect. This project's assumption."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Launched:
    """A job SageMaker accepted."""

    job_name: str
    request: dict[str, Any] | None
    """None when an earlier call submitted it."""
    alive: bool
    """False when a stop came in between, so that it was stopped again at once."""


def preflight(services: Services, owner: Owner, run_id: str) -> dict[str, Any]:
    """The first attempt's request, after every check that needs no claim.

    LaunchRefused when the definition, the service model or the dataset does not allow a launch.
    """
    try:
        definition = JobDefinition.from_json(owner.definition)
        request = render_request(
            definition,
            stack_id=owner.stack_id,
            run_id=run_id,
            attempt=1,
            run_seconds=_worthwhile(services, definition, affordable_seconds(definition, ())),
        )
    except ValueError as error:
        raise LaunchRefused(str(error)) from error
    unknown = services.jobs.unknown_field(request)
    if unknown:
        raise LaunchRefused(
            f"the request's field {unknown!r} is unknown to the SageMaker service model this "
            "function loaded. It should carry a current one beside its code (AWS_DATA_PATH): "
            "deploy again with a current botocore."
        )
    services.storage.require_manifest(definition.dataset_manifest)
    return request


def start_run(services: Services, owner: Owner, run_id: str, requester: str) -> Launched:
    """Launch a run's first attempt; a repetition by the same ``requester`` continues it.

    LaunchRefused when the run_id was used, another run is wanted, or anything forbids a launch.
    """
    preflight(services, owner, run_id)
    job = JobDefinition.from_json(owner.definition).job
    name = training_job_name(job=job, stack_id=owner.stack_id, run_id=run_id, attempt=1)
    held: Attempt | None = None
    try:
        held = _claim_first(services, owner, run_id, name, requester)
        return submit(services, held)
    except (LaunchRefused, LaunchUnwanted) as refusal:
        if held is not None:
            give_back(services, held, str(refusal))
        raise LaunchRefused(str(refusal)) from refusal
    except Exception:
        # Whoever asked is told that it failed; nothing may start behind their back, and what did
        # start must not run until the next sweep.
        try:
            _abandon(services, held or services.store.attempt(name), requester)
        except Exception:
            log.exception("%s is left to the sweep", name)
        raise


def _claim_first(
    services: Services, owner: Owner, run_id: str, name: str, requester: str
) -> Attempt:
    """The claim as this invocation holds it, or as it is where it needs no holder any more."""
    claim = services.store.claim_first(
        owner, run_id=run_id, job_name=name, definition=owner.definition, requester=requester
    )
    if claim is Claim.NOT_DESIRED:
        raise LaunchRefused(_why_not(services, owner, run_id))
    attempt = services.store.attempt(name)
    if attempt is None or attempt.requester != requester or attempt.run_id != run_id:
        raise LaunchRefused(
            f"run_id already used: {run_id!r} was launched before. Choose another run_id."
        )
    if claim is Claim.WON or attempt.state != "claimed":
        return attempt
    held = services.store.take_up(attempt)
    if held is None:
        raise LaunchUnwanted(f"{name} is being launched by another invocation")
    return held


def _abandon(services: Services, attempt: Attempt | None, requester: str) -> None:
    """Nothing more of a launch that failed for an unknown reason, if it was this requester's."""
    if attempt is None or attempt.requester != requester:
        return
    try:
        services.store.stop_run(attempt.owner, attempt.run_id)
    finally:
        # Even where the table did not answer: the write may have taken effect.
        services.jobs.stop(attempt.job_name)
        services.store.let_go(attempt, seconds_more=EFFECT_SECONDS)


def submit(services: Services, attempt: Attempt) -> Launched:
    """Bring a claim that was taken up to SageMaker; stop the job at once if it is not wanted then.

    LaunchRefused when no job exists or will (the caller gives the claim back); LaunchUnwanted when
    none was created because the run was stopped, or the claim is another's now; LaunchDelayed, for
    later attempts only, when SageMaker may take it later; LaunchUnknown, or what AWS raised, when
    that is open. In the latter cases the claim stays, and the reconcile goes on with it.
    """
    if attempt.state != "claimed":
        alive = attempt.state == "ended" or services.store.wants(attempt)
        return Launched(job_name=attempt.job_name, request=None, alive=alive)
    definition = _definition(_run(services, attempt))
    request = _create(services, definition, attempt)
    alive = services.store.wants(attempt)
    if not alive:
        services.jobs.stop(attempt.job_name)
    tell(services, attempt, _headline(attempt.first, alive), _text(definition, attempt, alive))
    services.store.mark_submitted(attempt.job_name)
    return Launched(job_name=attempt.job_name, request=request, alive=alive)


def _definition(run: Run) -> JobDefinition:
    try:
        return run.definition
    except ValueError as error:
        raise LaunchRefused(unreadable(error)) from error


def _create(services: Services, definition: JobDefinition, attempt: Attempt) -> dict[str, Any]:
    """The request that SageMaker took."""
    try:
        request = render_request(
            definition,
            stack_id=attempt.stack_id,
            run_id=attempt.run_id,
            attempt=attempt.attempt,
            run_seconds=_run_seconds(services, definition, attempt),
        )
    except ValueError as error:
        raise LaunchRefused(unreadable(error)) from error
    if attempt.first:
        services.storage.freeze(definition, attempt.run_id, attempt.claim)
    try:
        services.jobs.create(
            request,
            stack_id=attempt.stack_id,
            claimed_at=attempt.claimed_at,
            patient_quota=not attempt.first,
            permitted=lambda: _require_wanted(services, attempt),
        )
    except LaunchDelayed as delay:
        # Whoever launches a run waits for the answer; a run of days waits for its next attempt.
        if attempt.first:
            raise LaunchRefused(str(delay)) from delay
        limit = longest_delay_seconds(definition)
        if services.clock.now() - attempt.claimed_at >= limit:
            raise LaunchRefused(f"{delay} That was so for {limit / 3600:g} hours.") from delay
        raise
    return request


def _require_wanted(services: Services, held: Attempt) -> None:
    """LaunchUnwanted unless this invocation may create the job at this very moment."""
    if not services.store.may_launch(held):
        raise LaunchUnwanted(
            f"run {held.run_id!r} was stopped before {held.job_name} was created, or another "
            "invocation launches it"
        )


def _run_seconds(services: Services, definition: JobDefinition, attempt: Attempt) -> int:
    """Run time that money and plan leave; LaunchRefused when it is not worth an attempt."""
    before = billed_before(services, definition, attempt)
    return _worthwhile(services, definition, affordable_seconds(definition, before))


def _worthwhile(services: Services, definition: JobDefinition, affordable: int) -> int:
    least = least_seconds(definition)
    if affordable < least:
        raise LaunchRefused(
            f"max_cost_usd {definition.max_cost_usd:,.2f} does not pay for another attempt, "
            "its stop and its upload. Raise it, or lower max_runtime, instance_count or the price."
        )
    arn = plan_arn(definition)
    if arn is None:
        return affordable
    plan = services.jobs.training_plan(arn)
    left = seconds_left(plan, services.clock.now(), least=least)
    if left < least:
        raise LaunchRefused(
            f"the training plan {arn.rsplit('/', 1)[-1]} leaves less than {least // 60} minutes "
            "for an attempt beside its start, its stop and its upload. Extend it or buy another."
        )
    return min(affordable, left)


def billed_before(
    services: Services, definition: JobDefinition, attempt: Attempt
) -> tuple[float, ...]:
    """What each earlier attempt of the run is billed for, seconds per instance."""
    return tuple(
        billed(definition, earlier)
        for earlier in services.store.attempts(attempt.owner, attempt.run_id)
        if earlier.attempt < attempt.attempt
    )


def longest_delay_seconds(definition: JobDefinition) -> float:
    """How long after its claim a later attempt may wait for SageMaker to take it."""
    limits = definition.request.get("StoppingCondition", {})
    return float(limits.get("MaxPendingTimeInSeconds", PENDING_SECONDS))


def _run(services: Services, attempt: Attempt) -> Run:
    run = services.store.run(attempt.owner, attempt.run_id)
    if run is None:
        raise RuntimeError(f"{attempt.job_name} has no run in the table")
    return run


def give_back(services: Services, attempt: Attempt, why: str) -> None:
    """End the run of a claim that SageMaker will never take its holder, and forget the claim."""
    services.store.stop_run(attempt.owner, attempt.run_id)
    if attempt.earlier_until > services.clock.now():
        # Whoever held it before may be alive, so it is kept until nothing can come of it.
        services.store.let_go(attempt)
        return
    if not services.store.holds(attempt):
        return
    if attempt.first:
        try:
            services.storage.give_back(
                _run(services, attempt).definition, attempt.run_id, attempt.claim
            )
        except ValueError:
            # Where its files are is not known, so they stay and keep the run_id in use.
            log.exception("the files of run %s stay", attempt.run_id)
    state: RunState = "refused" if attempt.first else "failed"
    services.store.set_run_state(attempt.owner, attempt.run_id, state, why)
    services.store.release(attempt)


def _headline(first: bool, alive: bool) -> Happening:
    if not alive:
        return "stopped while launching"
    return "launched" if first else "resubmitted"


def _text(definition: JobDefinition, attempt: Attempt, alive: bool) -> str:
    if not alive:
        return (
            f"SageMaker accepted {attempt.job_name} after the run had been stopped; "
            "the job was stopped at once."
        )
    price = definition.hourly_price_usd
    cost = (
        ""
        if price is None
        else f" It costs {price * definition.instance_count:,.2f} USD per hour while it holds "
        "instances, by the price given in the stack."
    )
    return (
        f"SageMaker accepted attempt {ordinal(attempt.attempt, definition.maximum_attempts)} on "
        f"{definition.instance_count} instance(s).{cost} To stop it, invoke the controller with "
        f'{{"action": "stop", "run_id": "{attempt.run_id}"}}.'
    )


def _why_not(services: Services, owner: Owner, run_id: str) -> str:
    now = services.store.owner(owner.owner)
    if now is None or now.desired == "deleted":
        return f"run {run_id!r} is not launched: the job is being deleted from its stack"
    return (
        f"run {run_id!r} is not launched: run {now.run_id!r} of this job is still wanted. "
        "Stop it first."
    )

"""Claims without a job: who may go on with one, and what comes of it.

A claim is taken up by a conditional write before the desired state is read; a stop or a delete
writes the desired state before it reads the claim. So one of the two always sees the other, and
neither a job nor a claim is left behind, however long SageMaker keeps a claim waiting.

Whoever took a claim up may be held up anywhere, also just before CreateTrainingJob, for as long as
Lambda lets it live. So a claim without a job counts as at its end only when all who ever held it
have let go or cannot be alive any more: not before, because after a delete there is nobody left to
stop what they create.
"""

from __future__ import annotations

from typing import Final

from cdk_blackwell.lifecycle.handler.errors import LaunchDelayed, LaunchRefused, LaunchUnwanted
from cdk_blackwell.lifecycle.handler.launch import (
    EFFECT_SECONDS,
    give_back,
    longest_delay_seconds,
    submit,
)
from cdk_blackwell.lifecycle.handler.messages import tell
from cdk_blackwell.lifecycle.handler.outcomes import CONSEQUENCES
from cdk_blackwell.lifecycle.handler.records import Attempt
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.lifecycle.handler.store import HOLD_SECONDS

CLAIM_GRACE_SECONDS: Final = 300.0
"""A claim without a job is somebody's launch in progress for this long; later another goes on."""


def in_progress(services: Services, claim: Attempt) -> bool:
    """Whether somebody took it up so lately that nobody should take it over."""
    return claim.held_until - services.clock.now() > HOLD_SECONDS - CLAIM_GRACE_SECONDS


def may_come(services: Services, claim: Attempt) -> bool:
    """Whether a job that SageMaker does not know yet may still come of it."""
    if claim.state == "submitted":
        return in_progress(services, claim)  # SageMaker took it, and may not show it at once.
    return claim.held_until > services.clock.now()


def resolve(services: Services, claim: Attempt, requester: str) -> None:
    """Go on with a claim that has no job, unless somebody else is at it."""
    if claim.state != "claimed":
        return
    if in_progress(services, claim) and claim.requester != requester:
        return
    if services.clock.now() < claim.due and services.store.wants(claim):
        return
    held = services.store.take_up(claim)
    if held is not None:
        go_on(services, held)


def go_on(services: Services, held: Attempt) -> None:
    """Bring a claim that this invocation holds to SageMaker, and do what its answer asks for."""
    try:
        _submit(services, held)
    except Exception:
        services.store.let_go(held, seconds_more=EFFECT_SECONDS)
        raise


def _submit(services: Services, claim: Attempt) -> None:
    try:
        if not services.store.wants(claim):
            raise LaunchUnwanted
        submit(services, claim)
    except LaunchUnwanted:
        if claim.earlier_until > services.clock.now():
            services.store.let_go(claim)
        else:
            record_absent(services, claim)
    except LaunchDelayed as delay:
        if not claim.delay:
            tell(services, claim, "waits to be resubmitted", _waiting(services, claim, delay))
        services.store.let_go(claim, delay=str(delay))
    except LaunchRefused as refusal:
        # Told first: who crashes in between is refused, and tells it, once more.
        if claim.first:
            tell(services, claim, "could not be launched", str(refusal))
        else:
            tell(
                services,
                claim,
                "failed",
                f"Attempt {claim.attempt} could not be submitted: {refusal} The run ends here; its "
                "checkpoints stay in S3.",
            )
        give_back(services, claim, str(refusal))


def record_absent(services: Services, claim: Attempt) -> None:
    """End a claim that is not wanted and has no job."""
    text = CONSEQUENCES["stopped_by_us"].text
    services.store.record_end(
        claim,
        status="Absent",
        cause="stopped_by_us",
        reason="no training job of this name exists",
        text=text,
        step=0,
        trained=False,
        billed_seconds=0.0,
        action="finish",
    )
    services.store.set_run_state(claim.owner, claim.run_id, "stopped", text)
    # Before the first attempt nothing ran, and who stopped it was answered.
    if not claim.first:
        tell(services, claim, "stopped", text)
    services.store.mark_done(claim.job_name)


def _waiting(services: Services, claim: Attempt, delay: LaunchDelayed) -> str:
    run = services.store.run(claim.owner, claim.run_id)
    assert run is not None
    hours = longest_delay_seconds(run.definition) / 3600
    return (
        f"SageMaker did not take attempt {claim.attempt} yet: {delay} The controller tries again "
        f"every few minutes for up to {hours:g} hours, then the run ends. To end it now, invoke "
        f'the controller with {{"action": "stop", "run_id": "{claim.run_id}"}}.'
    )

"""Claims without a job: who may go on with one, and what comes of it.

A claim is taken up by a conditional write before the desired state is read; a stop or a delete
writes the desired state before it reads the claim. So one of the two always sees the other, and
neither a job nor a claim is left behind, however long SageMaker keeps a claim waiting.
"""

from __future__ import annotations

from typing import Final

from cdk_blackwell.lifecycle.handler.errors import LaunchDelayed, LaunchRefused
from cdk_blackwell.lifecycle.handler.launch import give_back, longest_delay_seconds, submit
from cdk_blackwell.lifecycle.handler.messages import tell
from cdk_blackwell.lifecycle.handler.outcomes import CONSEQUENCES
from cdk_blackwell.lifecycle.handler.records import Attempt
from cdk_blackwell.lifecycle.handler.services import Services

CLAIM_GRACE_SECONDS: Final = 300.0
"""A claim without a job is somebody's launch in progress for this long; later it was abandoned."""


def in_progress(services: Services, claim: Attempt) -> bool:
    """Whether somebody may be bringing it to SageMaker at this moment."""
    return services.clock.now() - claim.busy_since < CLAIM_GRACE_SECONDS


def resolve(services: Services, claim: Attempt, requester: str) -> None:
    """Go on with a claim that has no job, unless somebody else is at it."""
    if claim.state != "claimed":
        return
    if in_progress(services, claim) and claim.requester != requester:
        return
    if not services.store.take_up(claim):
        return
    if not services.store.wants(claim):
        record_absent(services, claim)
        return
    try:
        submit(services, claim)
    except LaunchDelayed as delay:
        if not claim.delay:
            tell(services, claim, "waits to be resubmitted", _waiting(services, claim, delay))
        services.store.put_off(claim, str(delay))
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

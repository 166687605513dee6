"""Stopping: by name, every claim, and never giving up on one because of another."""

from __future__ import annotations

from collections.abc import Iterable

from cdk_blackwell.lifecycle.handler.launch import CLAIM_GRACE_SECONDS
from cdk_blackwell.lifecycle.handler.records import Attempt
from cdk_blackwell.lifecycle.handler.resume import CONSEQUENCES
from cdk_blackwell.lifecycle.handler.services import Services


def stop_attempts(services: Services, attempts: Iterable[Attempt]) -> tuple[str, ...]:
    """Ask every attempt's job to stop; names of those that are not at an end yet.

    A young claim without a job counts as not at an end, because its launch may be under way; it
    looks at the desired state after CreateTrainingJob and stops its job itself. Raises only after
    every attempt was asked.
    """
    alive: list[str] = []
    errors: list[Exception] = []
    for attempt in attempts:
        if attempt.state == "ended":
            continue
        try:
            if not _stop(services, attempt):
                alive.append(attempt.job_name)
        except Exception as error:
            error.add_note(f"while stopping {attempt.job_name}")
            errors.append(error)
    if errors:
        raise errors[0]
    return tuple(alive)


def _stop(services: Services, attempt: Attempt) -> bool:
    seen = services.jobs.stop(attempt.job_name)
    if seen is not None:
        return seen.terminal
    if services.clock.now() - attempt.claimed_at < CLAIM_GRACE_SECONDS:
        return attempt.state == "submitted"
    record_absent(services, attempt)
    return True


def record_absent(services: Services, attempt: Attempt) -> None:
    """End a claim that is not wanted and has no job."""
    text = CONSEQUENCES["stopped_by_us"].text
    services.store.record_end(
        attempt,
        status="Absent",
        cause="stopped_by_us",
        reason="no training job of this name exists",
        text=text,
        step=0,
        trained=False,
        action="finish",
    )
    services.store.mark_done(attempt.job_name)
    services.store.set_run_state(attempt.owner, attempt.run_id, "stopped", text)

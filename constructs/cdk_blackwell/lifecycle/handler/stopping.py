"""Stopping: by name, every claim, and never giving up on one because of another."""

from __future__ import annotations

from collections.abc import Iterable

from cdk_blackwell.lifecycle.handler.claims import may_come, record_absent
from cdk_blackwell.lifecycle.handler.records import Attempt
from cdk_blackwell.lifecycle.handler.services import Services


def stop_attempts(services: Services, attempts: Iterable[Attempt]) -> tuple[str, ...]:
    """Ask every attempt's job to stop; names of those that are not at an end yet.

    One that SageMaker does not know counts as not at an end while a job may still come of its
    claim. Raises only after every attempt was asked.
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
    if may_come(services, attempt):
        return False
    record_absent(services, attempt)
    return True

"""The five-minute sweep: whatever an event, a retry or a crash left undone is done here.

EventBridge delivers job events on a best-effort basis, so nothing may depend on them alone.
"""

from __future__ import annotations

import logging

from cdk_blackwell.lifecycle.handler.claims import in_progress, resolve
from cdk_blackwell.lifecycle.handler.jobs import Observation
from cdk_blackwell.lifecycle.handler.records import Attempt
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.lifecycle.handler.settle import settle
from cdk_blackwell.lifecycle.handler.telemetry import publish

log = logging.getLogger(__name__)


def reconcile(services: Services, requester: str) -> int:
    """Compare every unsettled claim with SageMaker; how many were looked at.

    One that fails does not keep the others waiting; the first error is raised at the end.
    """
    attempts, unreadable = services.store.readable_attempts()
    errors: list[Exception] = [*unreadable]
    unsettled = [attempt for attempt in attempts if not attempt.settled]
    for attempt in unsettled:
        try:
            bring_up_to_date(services, attempt, services.jobs.describe(attempt.job_name), requester)
        except Exception as error:
            log.exception("%s could not be reconciled", attempt.job_name)
            errors.append(error)
    if errors:
        raise errors[0]
    return len(unsettled)


def bring_up_to_date(
    services: Services, attempt: Attempt, seen: Observation | None, requester: str
) -> None:
    """Do what the difference between a claim and SageMaker asks for, and only then its numbers."""
    _bring_up_to_date(services, attempt, seen, requester)
    if seen is not None:
        publish(services, attempt, seen)


def _bring_up_to_date(
    services: Services, attempt: Attempt, seen: Observation | None, requester: str
) -> None:
    if seen is None and attempt.state == "claimed":
        resolve(services, attempt, requester)
    elif seen is None:
        if in_progress(services, attempt):
            return  # Too young to conclude anything from its absence.
        # Only a job that has ended can be deleted in SageMaker.
        gone = Observation(job_name=attempt.job_name, status="Deleting", secondary="", reason="")
        settle(services, attempt, gone, requester)
    elif seen.terminal:
        settle(services, attempt, seen, requester)
    else:
        services.store.mark_submitted(attempt.job_name)
        if not services.store.wants(attempt):
            log.info("%s is alive although its run is stopped; stopping it", attempt.job_name)
            services.jobs.stop(attempt.job_name)

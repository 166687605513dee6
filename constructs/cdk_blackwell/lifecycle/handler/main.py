"""Entry point of the run controller's Lambda: tells the callers apart by their own keys."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from cdk_blackwell.lifecycle.handler import cloudformation, direct
from cdk_blackwell.lifecycle.handler.answer import Put, put
from cdk_blackwell.lifecycle.handler.cloudformation import HOP, Invocation
from cdk_blackwell.lifecycle.handler.jobs import Observation
from cdk_blackwell.lifecycle.handler.permissions import FUNCTION_TIMEOUT_SECONDS
from cdk_blackwell.lifecycle.handler.reconcile import bring_up_to_date, reconcile
from cdk_blackwell.lifecycle.handler.schedule import KEY_NAME
from cdk_blackwell.lifecycle.handler.services import Services

EVENT_SOURCE: Final = "aws.sagemaker"
EVENT_JOB_STATE: Final = "SageMaker Training Job State Change"
EVENT_SCHEDULED: Final = "Scheduled Event"

log = logging.getLogger(__name__)
logging.getLogger("cdk_blackwell").setLevel(logging.INFO)


@cache
def _services() -> Services:
    # Clients only: what the controller knows lies in its table.
    return Services.from_environment()


def handler(event: Mapping[str, Any], context: Any) -> dict[str, Any] | None:
    """Lambda's entry point."""
    return route(_services(), event, _invocation(context))


def route(
    services: Services, event: Mapping[str, Any], invocation: Invocation, *, send_once: Put = put
) -> dict[str, Any] | None:
    """Hand the event to whom it concerns; a direct invocation gets an answer."""
    if "RequestType" in event and "ResponseURL" in event:
        cloudformation.handle(services, event, invocation, send_once=send_once)
        return None
    if HOP in event:
        own = event[HOP]
        cloudformation.handle(
            services, own["event"], invocation, hop=int(own["hop"]), send_once=send_once
        )
        return None
    if event.get("source") == EVENT_SOURCE and event.get("detail-type") == EVENT_JOB_STATE:
        job_changed(services, event["detail"], str(event.get("id") or invocation.request_id))
        return None
    if event.get("detail-type") == EVENT_SCHEDULED:
        count = reconcile(services, str(event.get("id") or invocation.request_id))
        log.info("reconciled %d attempts", count)
        return None
    if KEY_NAME in event:
        return direct.start_scheduled(services, event)
    if "action" in event:
        return direct.invoke(services, event, invocation.request_id)
    raise ValueError(
        f"unknown event with keys {', '.join(sorted(event)) or 'none'}; allowed are CloudFormation "
        f"events, {EVENT_JOB_STATE!r}, {EVENT_SCHEDULED!r}, a schedule's input and "
        '{"action": "start|trial|stop|status", "run_id": ...}'
    )


def job_changed(services: Services, detail: Mapping[str, Any], requester: str) -> None:
    """Treat a job-state event: a hint to look, because it may come twice, late or out of order.

    It is never believed against a describe: to resubmit a job that lives costs another one's price,
    and what a describe does not show yet the sweep finds within minutes.
    """
    attempt = services.store.attempt(str(detail["TrainingJobName"]))
    if attempt is None:
        log.info("%s is not a job of this stack", detail["TrainingJobName"])
        return
    seen = services.jobs.describe(attempt.job_name)
    told = Observation.read(detail)
    if seen is None and told.terminal and attempt.state == "submitted":
        # Its record was deleted in SageMaker, so the event alone knows how it ended.
        seen = told
    bring_up_to_date(services, attempt, seen, requester)


def _invocation(context: Any) -> Invocation:
    if context is None:
        return Invocation(
            request_id=str(uuid.uuid4()),
            function_arn="",
            remaining_seconds=lambda: float(FUNCTION_TIMEOUT_SECONDS),
        )
    return Invocation(
        request_id=str(context.aws_request_id),
        function_arn=str(context.invoked_function_arn),
        remaining_seconds=lambda: context.get_remaining_time_in_millis() / 1000,
    )

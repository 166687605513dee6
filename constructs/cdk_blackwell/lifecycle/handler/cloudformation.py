"""The custom resource's events, and the waiting they need.

`resource.advance` takes one step and may be repeated at will; this module repeats it until there
is an answer, goes on in a new invocation before the function's time is up, and gives up in time
for CloudFormation to hear why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.lifecycle.handler.answer import Answer, Put, RequestLog, put, render, send
from cdk_blackwell.lifecycle.handler.errors import (
    ACCESS_REFUSED,
    AccessRefused,
    LaunchRefused,
    LaunchUnknown,
    error_code,
)
from cdk_blackwell.lifecycle.handler.jobs import passing
from cdk_blackwell.lifecycle.handler.resource import Event, Waiting, advance, physical_id
from cdk_blackwell.lifecycle.handler.services import Services

DEADLINE_SECONDS: Final = 55 * 60.0
"""CloudFormation waits one hour; the answer leaves before."""

HOP_MARGIN_SECONDS: Final = 180.0
"""Time left in the function at which it goes on in a new invocation: one step at its slowest."""

GRANTS_SECONDS: Final = 60.0
"""How long a refused access may come from a grant that IAM has not spread yet."""

GRANTS_PAUSE_SECONDS: Final = 5.0

POLL_SECONDS: Final = (1.0, 2.0, 5.0, 10.0, 15.0, 15.0, 15.0, 15.0, 30.0)
"""Pauses between steps; the last one repeats."""

HOP: Final = "cdk_blackwell_hop"
"""Key of our own continuation event: the original event and the number of the hop."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Invocation:
    """What Lambda says about this call."""

    request_id: str
    """The same for Lambda's own retries."""
    function_arn: str
    remaining_seconds: Callable[[], float]


def handle(
    services: Services,
    event: Mapping[str, Any],
    invocation: Invocation,
    *,
    hop: int = 0,
    send_once: Put = put,
) -> None:
    """Treat a CloudFormation event, or its ``hop``-th continuation, and answer when it is done.

    ForeignEventError when it is not an event of this function's stack.
    """
    services.origin.check(event)
    answer = _work(services, event, invocation, hop)
    if answer is not None:
        _answer(services, event, invocation, answer, send_once)


def _work(
    services: Services, event: Mapping[str, Any], invocation: Invocation, hop: int
) -> Answer | None:
    """The answer, or None when another invocation gives it."""
    first = services.clock.now()
    while True:
        try:
            return _attempt(services, event, invocation, hop)
        except (AccessRefused, ClientError) as error:
            refused = isinstance(error, AccessRefused) or error_code(error) in ACCESS_REFUSED
            if not refused or services.clock.now() - first >= GRANTS_SECONDS:
                return _failed(event, invocation, error)
            log.warning("not allowed yet: %s", error)
        except Exception as error:
            return _failed(event, invocation, error)
        services.clock.sleep(GRANTS_PAUSE_SECONDS)


def _attempt(
    services: Services, event: Mapping[str, Any], invocation: Invocation, hop: int
) -> Answer | None:
    requests = RequestLog(table=services.table)
    entry = requests.enter(event["RequestId"], hop=hop, invocation=invocation.request_id)
    if entry is None:
        log.info("request %s is a duplicate", event["RequestId"])
        return None
    if entry.announced is not None:
        return entry.announced
    return _until_answer(services, Event.read(event, entry.started), event, invocation, hop)


def _failed(event: Mapping[str, Any], invocation: Invocation, error: Exception) -> Answer:
    """Whatever it is, CloudFormation must hear of it: silence costs an hour."""
    if isinstance(error, LaunchRefused | LaunchUnknown | ValueError):
        return Answer(status="FAILED", reason=str(error))
    log.error("%s failed", event["RequestType"], exc_info=error)
    return Answer(
        status="FAILED",
        reason=f"{event['RequestType']} failed: {type(error).__name__}: {error}. "
        f"Log: request {invocation.request_id}",
    )


def _until_answer(
    services: Services,
    request: Event,
    event: Mapping[str, Any],
    invocation: Invocation,
    hop: int,
) -> Answer | None:
    step = 0
    while True:
        outcome = _step(services, request)
        if isinstance(outcome, Answer):
            return outcome
        pause = POLL_SECONDS[min(step, len(POLL_SECONDS) - 1)]
        if services.clock.now() + pause - request.started >= DEADLINE_SECONDS:
            return _too_late(outcome)
        if invocation.remaining_seconds() - pause < HOP_MARGIN_SECONDS and step > 0:
            log.info("going on in a new invocation: %s", outcome.what)
            services.continue_later(
                invocation.function_arn, {HOP: {"event": dict(event), "hop": hop + 1}}
            )
            return None
        services.clock.sleep(pause)
        step += 1


def _step(services: Services, request: Event) -> Answer | Waiting:
    try:
        return advance(services, request)
    except Exception as error:
        if request.kind != "Delete" or not passing(error):
            raise
        # A stack that cannot be deleted is the price of answering now; there is most of an hour.
        log.warning("AWS does not answer yet: %s", error)
        return Waiting(
            what=f"AWS to answer ({type(error).__name__}: {error})",
            advice="Delete the stack again; jobs that it could not ask to stop may be running.",
        )


def _too_late(waiting: Waiting) -> Answer:
    return Answer(
        status="FAILED",
        reason=f"after {DEADLINE_SECONDS / 60:.0f} minutes still waiting for {waiting.what}. "
        f"{waiting.advice}",
    )


def _answer(
    services: Services,
    event: Mapping[str, Any],
    invocation: Invocation,
    answer: Answer,
    send_once: Put,
) -> None:
    requests = RequestLog(table=services.table)
    try:
        mine = requests.begin_answer(event["RequestId"], invocation.request_id, answer)
    except Exception:
        # Without the table an answer may go out twice, which is better than never.
        log.exception("the answer could not be announced")
        mine = True
    if not mine:
        log.info("request %s was answered already", event["RequestId"])
        return
    identity = physical_id(event["StackId"], event["LogicalResourceId"])
    log.info("%s %s: %s", event["RequestType"], answer.status, answer.reason)
    if event["RequestType"] == "Delete":
        # A Create that was never answered leaves an id of CloudFormation's own making.
        identity = event.get("PhysicalResourceId", identity)
    body = render(answer, event, identity)
    send(event["ResponseURL"], body, clock=services.clock, send_once=send_once)
    try:
        requests.confirm_answer(event["RequestId"])
    except Exception:
        log.exception("the answer arrived but could not be recorded")

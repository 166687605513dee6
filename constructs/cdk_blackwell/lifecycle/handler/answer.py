"""Answering CloudFormation: exactly once per event, whatever is delivered twice or crashes."""

from __future__ import annotations

import bisect
import http.client
import json
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal

from cdk_blackwell.lifecycle.handler.clock import Clock
from cdk_blackwell.lifecycle.handler.table import Table, milliseconds, seconds

REQUEST: Final = "request"
"""Partition of CloudFormation's events, by RequestId."""

ANSWER_LEASE_SECONDS: Final = 120.0
"""How long an announced but unconfirmed answer keeps other invocations from sending theirs."""

ANSWER_BYTES: Final = 4096
"""CloudFormation's limit on the whole answer."""

_TRIES: Final = 6
_TIMEOUT_SECONDS: Final = 20.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What CloudFormation is told."""

    status: Literal["SUCCESS", "FAILED"]
    reason: str
    data: dict[str, str] = field(default_factory=dict)
    """Attributes of the custom resource."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A request that was taken up."""

    started: float
    """First invocation, seconds since the epoch."""
    announced: Answer | None
    """What an earlier try was about to answer, or did without hearing that it arrived."""


@dataclass(frozen=True, kw_only=True)
class RequestLog:
    """Which events were taken up by whom, and which were answered."""

    table: Table

    def enter(self, request_id: str, *, hop: int, invocation: str) -> Entry | None:
        """Take up a request at its ``hop``-th invocation, or None for a duplicate.

        A repetition of the same invocation (Lambda's own retry) may take it up again until it is
        answered.
        """
        won = self.table.update(
            REQUEST,
            request_id,
            "SET hop = :h, invocation = :i, started = if_not_exists(started, :t)",
            {":h": hop, ":i": invocation, ":t": self.table.now()},
            condition="attribute_not_exists(hop) OR hop < :h OR (hop = :h AND invocation = :i)",
        )
        item = self.table.get(REQUEST, request_id) if won else None
        if item is None or item.get("answered"):
            return None
        announced = item.get("answer")
        return Entry(
            started=seconds(item["started"]),
            announced=None if announced is None else Answer(**json.loads(announced)),
        )

    def begin_answer(self, request_id: str, invocation: str, answer: Answer) -> bool:
        """Announce an answer; False when another invocation sent one or is sending it.

        It is kept, since it may arrive although nobody hears so: a repetition sends the same again.
        """
        old = self.table.clock.now() - ANSWER_LEASE_SECONDS
        return self.table.update(
            REQUEST,
            request_id,
            "SET answering = :t, answering_by = :i, answer = if_not_exists(answer, :a)",
            {":t": self.table.now(), ":i": invocation, ":a": json.dumps(asdict(answer))},
            condition="attribute_not_exists(answered) AND (attribute_not_exists(answering) "
            "OR answering < :old OR answering_by = :i)",
            extra={":old": milliseconds(old)},
        )

    def confirm_answer(self, request_id: str) -> None:
        """The answer arrived."""
        self.table.update(REQUEST, request_id, "SET answered = :true", {":true": True})


def render(answer: Answer, event: Mapping[str, Any], physical_id: str) -> bytes:
    """The answer's JSON, its reason cut so that the whole fits CloudFormation's limit."""
    body = {
        "Status": answer.status,
        "Reason": answer.reason,
        "PhysicalResourceId": physical_id,
        "StackId": event["StackId"],
        "RequestId": event["RequestId"],
        "LogicalResourceId": event["LogicalResourceId"],
        "Data": answer.data,
    }
    text = json.dumps(body).encode()
    if len(text) <= ANSWER_BYTES:
        return text
    # A message among the attributes is worth less than the reason.
    body["Data"] = {key: value[:200] for key, value in answer.data.items()}

    def cut(length: int) -> bytes:
        return json.dumps({**body, "Reason": answer.reason[:length] + "..."}).encode()

    # Escaping makes characters differ in size, so the longest that fits is searched for.
    too_long = bisect.bisect_left(
        range(len(answer.reason) + 1), True, key=lambda length: len(cut(length)) > ANSWER_BYTES
    )
    return cut(max(0, too_long - 1))


Put = Callable[[str, bytes], None]


def put(url: str, body: bytes) -> None:
    """One PUT to the presigned URL; the signature covers an empty content type."""
    if not url.startswith(("https://", "http://")):
        raise ValueError(f"ResponseURL {url!r} is not an HTTP address")
    request = urllib.request.Request(
        url, data=body, method="PUT", headers={"Content-Type": "", "Content-Length": str(len(body))}
    )
    with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
        log.info("CloudFormation took the answer: HTTP %s", response.status)


def send(url: str, body: bytes, *, clock: Clock, send_once: Put = put) -> None:
    """Send with retries; raises what the last try raised."""
    delay = 1.0
    for attempt in range(1, _TRIES + 1):
        try:
            send_once(url, body)
            return
        except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
            refused = isinstance(error, urllib.error.HTTPError) and 400 <= error.code < 500
            if attempt == _TRIES or refused:
                raise
            log.warning("the answer was not taken (%s), trying again", error)
        clock.sleep(delay)
        delay *= 2

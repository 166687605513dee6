"""Custom resources: events to a Lambda function, answers over HTTP to a URL of this server."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.local.lambda_runtime import invoke_asynchronously
from cdk_blackwell.local.resources.resource_type import (
    Context,
    Made,
    Properties,
    ResourceError,
    is_gone,
)

RESPONSE_PATH: Final = "/cloudformation-response/"
DEFAULT_TIMEOUT_SECONDS: Final = 3600
PHYSICAL_ID_LIMIT: Final = 1024


@dataclass(kw_only=True)
class _Wait:
    """One event that was sent and not answered yet."""

    answered: threading.Event = field(default_factory=threading.Event)
    answer: dict[str, Any] = field(default_factory=dict)
    failure: str = ""


_waiting: dict[str, _Wait] = {}


class CustomResourceFailedError(ResourceError):
    """The function answered FAILED; what it made, if anything, has to be deleted."""

    def __init__(self, reason: str, physical_id: str = "") -> None:
        super().__init__(reason)
        self.physical_id = physical_id


def receive_answer(token: str, body: bytes) -> int:
    """An answer came in by PUT; returns the HTTP status. Only the first one counts."""
    wait = _waiting.get(token)
    if wait is None:
        return 403
    try:
        answer = json.loads(body)
    except ValueError:
        return 400
    if not isinstance(answer, dict) or answer.get("Status") not in ("SUCCESS", "FAILED"):
        return 400
    if not wait.answered.is_set():
        wait.answer = answer
        wait.answered.set()
    return 200


def stringify(value: Any) -> Any:
    """Properties as a custom resource gets them: every number and boolean is text."""
    if isinstance(value, dict):
        return {key: stringify(item) for key, item in value.items()}
    if isinstance(value, list):
        return [stringify(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


class CustomResource:
    """``Custom::*`` and ``AWS::CloudFormation::CustomResource``."""

    def create(self, context: Context, properties: Properties) -> Made:
        """Send Create."""
        return self._send(context, "Create", properties)

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        """Send Update; another physical id in the answer makes the old one go."""
        return self._send(
            context,
            "Update",
            properties,
            made=made,
            extra={"OldResourceProperties": stringify(dict(old))},
        )

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        """Send Delete."""
        self._send(context, "Delete", properties, made=made)

    def _send(
        self,
        context: Context,
        kind: str,
        properties: Properties,
        *,
        made: Made | None = None,
        extra: dict[str, Any] | None = None,
    ) -> Made:
        token = str(uuid.uuid4())
        event = {
            "RequestType": kind,
            "ServiceToken": properties["ServiceToken"],
            "ResponseURL": f"{context.world.endpoint}{RESPONSE_PATH}{token}",
            "StackId": context.stack_id,
            "RequestId": token,
            "LogicalResourceId": context.logical_id,
            "ResourceType": context.type,
            "ResourceProperties": stringify(dict(properties)),
            **({"PhysicalResourceId": made.physical_id} if made else {}),
            **(extra or {}),
        }
        seconds = int(properties.get("ServiceTimeout", DEFAULT_TIMEOUT_SECONDS))
        answer = self._exchange(context, token, event, seconds)
        physical_id = str(answer.get("PhysicalResourceId") or (made.physical_id if made else ""))
        if answer["Status"] == "FAILED":
            reason = answer.get("Reason") or "the function gave no Reason"
            raise CustomResourceFailedError(
                f"Received response status [FAILED] from custom resource. Message returned:"
                f" {reason} (RequestId: {token})",
                physical_id if kind == "Create" else "",
            )
        if not physical_id or len(physical_id) > PHYSICAL_ID_LIMIT:
            raise ResourceError("Invalid PhysicalResourceId in the custom resource's response")
        data = answer.get("Data") or {}
        return Made(physical_id=physical_id, attributes=dict(_flatten(data)))

    def _exchange(
        self, context: Context, token: str, event: dict[str, Any], seconds: int
    ) -> dict[str, Any]:
        wait = _waiting[token] = _Wait()

        def on_failure(message: str) -> None:
            wait.failure = message
            wait.answered.set()

        try:
            try:
                invoke_asynchronously(
                    context.world,
                    function=event["ServiceToken"],
                    event=event,
                    on_failure=on_failure,
                )
            except ClientError as error:
                if is_gone(error):
                    raise ResourceError(
                        f"the custom resource's function is gone: {error}"
                    ) from None
                raise
            answered = wait.answered.wait(seconds)
            if wait.answer:
                return wait.answer
            if answered:
                # AWS would wait until ServiceTimeout; here the reason is known at once.
                raise ResourceError(f"the custom resource's function failed: {wait.failure}")
            raise ResourceError(
                "CloudFormation did not receive a response from your Custom Resource within"
                f" {seconds} s. Please check your logs for requestId [{token}]."
            )
        finally:
            del _waiting[token]


def _flatten(data: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, Any]]:
    for key, value in data.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")

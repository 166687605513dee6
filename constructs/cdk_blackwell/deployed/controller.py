"""The run controller of a deployed job, asked directly."""

from __future__ import annotations

import json
from typing import Any

from botocore.exceptions import (
    ConnectionError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
)

from cdk_blackwell.deployed.errors import AwsRefusedError, RefusedError
from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.lifecycle.handler.definition import ControllerAnswer


def ask(aws: Aws, job: DeployedJob, action: str, **more: Any) -> ControllerAnswer:
    """Invoke the controller; AwsRefusedError when the function itself failed or did not answer.

    ``more`` are the keys of a direct invocation (``run_id``, ``overrides``, ``dry_run``).
    """
    event = {"action": action, **{key: value for key, value in more.items() if value is not None}}
    try:
        answer = aws.client("lambda").invoke(
            FunctionName=job.output.controller, Payload=json.dumps(event).encode()
        )
        body = answer["Payload"].read()
    except (ConnectionError, HTTPClientError) as error:
        if isinstance(error, ConnectTimeoutError | EndpointConnectionError):
            raise  # Nothing was sent.
        raise AwsRefusedError(
            f"the controller {job.output.controller} was asked and no answer came: "
            f"{' '.join(str(error).split()).rstrip('.')}; it may have done what it was asked, so "
            f"look with 'cdk-blackwell runs {job.words}' before asking again"
        ) from error
    try:
        payload = json.loads(body)
    except ValueError:
        payload = body.decode(errors="replace")
    if "FunctionError" in answer:
        reason = payload.get("errorMessage") if isinstance(payload, dict) else payload
        raise AwsRefusedError(
            f"the controller {job.output.controller} failed: {reason} (its log group tells more); "
            "it may still do what it was asked, so look with 'cdk-blackwell runs "
            f"{job.words}' before asking again"
        )
    try:
        return ControllerAnswer.from_dict(payload)
    except ValueError as error:
        raise AwsRefusedError(
            f"{error}; the stack {job.stack} was deployed with another version of cdk-blackwell"
        ) from error


def require(answer: ControllerAnswer) -> ControllerAnswer:
    """The same answer; RefusedError when the controller refused."""
    if answer.state == "refused":
        raise RefusedError(answer.message)
    return answer

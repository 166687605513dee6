"""One embedded AWS for all tests of this folder, and small helpers around CloudFormation."""

from __future__ import annotations

import io
import json
import time
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from cdk_blackwell.local.aws import LocalAws

FINAL = ("_COMPLETE", "_FAILED")
POLL_SECONDS = 0.05
LIMIT_SECONDS = 60.0


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    with LocalAws(state_dir=tmp_path_factory.mktemp("aws")) as running:
        yield running


class Stacks:
    """CloudFormation as a test reads best."""

    def __init__(self, aws: LocalAws) -> None:
        self.api = aws.client("cloudformation")

    def create(self, name: str, resources: dict[str, Any], **rest: Any) -> dict[str, Any]:
        body = json.dumps({"Resources": resources, **rest})
        return self.wait(self.api.create_stack(StackName=name, TemplateBody=body)["StackId"])

    def update(self, name: str, resources: dict[str, Any], **rest: Any) -> dict[str, Any]:
        body = json.dumps({"Resources": resources, **rest})
        return self.wait(self.api.update_stack(StackName=name, TemplateBody=body)["StackId"])

    def delete(self, name: str) -> dict[str, Any]:
        stack = self.api.describe_stacks(StackName=name)["Stacks"][0]
        self.api.delete_stack(StackName=name)
        return self.wait(stack["StackId"])

    def wait(self, stack_id: str) -> dict[str, Any]:
        limit = time.monotonic() + LIMIT_SECONDS
        while True:
            stack: dict[str, Any] = self.api.describe_stacks(StackName=stack_id)["Stacks"][0]
            status = stack["StackStatus"]
            if status.endswith(FINAL) and "IN_PROGRESS" not in status:
                return stack
            assert time.monotonic() < limit, f"still {status}"
            time.sleep(POLL_SECONDS)

    def reasons(self, stack_id: str) -> list[str]:
        events = self.api.describe_stack_events(StackName=stack_id)["StackEvents"]
        return [
            f"{event['LogicalResourceId']}: {event['ResourceStatusReason']}"
            for event in reversed(events)
            if event["ResourceStatus"].endswith("_FAILED")
        ]

    def physical_id(self, name: str, logical_id: str) -> str:
        answer = self.api.describe_stack_resource(StackName=name, LogicalResourceId=logical_id)
        return str(answer["StackResourceDetail"]["PhysicalResourceId"])


@pytest.fixture
def stacks(aws: LocalAws) -> Stacks:
    return Stacks(aws)


@pytest.fixture
def function(aws: LocalAws) -> Iterator[Callable[..., str]]:
    """Makes a function of Python source; returns its ARN."""
    made = []
    role = aws.client("iam").create_role(
        RoleName=f"function-{time.monotonic_ns()}",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": []}),
    )["Role"]["Arn"]

    def make(name: str, source: str, **rest: Any) -> str:
        archive = io.BytesIO()
        with zipfile.ZipFile(archive, "w") as zipped:
            zipped.writestr("index.py", source)
            zipped.writestr("data.txt", "from the zip")
        answer = aws.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Role=role,
            Handler="index.handler",
            Code={"ZipFile": archive.getvalue()},
            **{"Timeout": 30, **rest},
        )
        made.append(name)
        return str(answer["FunctionArn"])

    yield make
    for name in made:
        aws.client("lambda").delete_function(FunctionName=name)

"""The embedded SageMaker as its users see it, and small jobs to run on it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3

from cdk_blackwell.local.sagemaker import SageMakerRuntime

REGION = "us-west-2"
BUCKET = "job-bucket"
WAIT_SECONDS = 60.0
"""Only how long a broken test may hang; no test depends on it."""


@dataclass(kw_only=True)
class Sagemaker:
    """The embedded SageMaker as its users see it."""

    endpoint_url: str
    state_dir: Path
    runtime: SageMakerRuntime = field(init=False)
    events: list[dict[str, Any]] = field(default_factory=list)
    listeners: list[Callable[[dict[str, Any]], None]] = field(default_factory=list)
    """Called with each event before it is recorded."""

    def emit(self, region: str, account: str, event: dict[str, Any]) -> None:
        """What the runtime publishes with."""
        for listener in self.listeners:
            listener(event)
        self.events.append(event)

    def client(self, service: str) -> Any:
        return boto3.client(service, region_name=REGION, endpoint_url=self.endpoint_url)  # type: ignore[call-overload]

    @property
    def api(self) -> Any:
        return self.client("sagemaker")

    @property
    def s3(self) -> Any:
        return self.client("s3")

    def folder(self, name: str) -> Path:
        return self.state_dir / "training-jobs" / name

    def root(self, name: str) -> Path:
        return self.folder(name) / "root"

    def run(self, script: str, *, name: str = "job", **members: Any) -> dict[str, Any]:
        """Create a job that runs a shell script, and wait for its end."""
        self.start(script, name=name, **members)
        return self.wait(name)

    def start(self, script: str, *, name: str = "job", **members: Any) -> None:
        self.api.create_training_job(**request(script, name=name, **members))

    def wait(self, name: str = "job") -> dict[str, Any]:
        """The description of the job once it is over."""
        wait_until(lambda: self.describe(name)["TrainingJobStatus"] in ENDS)
        return self.describe(name)

    def describe(self, name: str = "job") -> dict[str, Any]:
        answer: dict[str, Any] = self.api.describe_training_job(TrainingJobName=name)
        return answer

    def put(self, key: str, content: str = "x") -> None:
        self.s3.put_object(Bucket=BUCKET, Key=key, Body=content.encode())

    def keys(self, prefix: str = "") -> list[str]:
        found = self.s3.list_objects_v2(Bucket=BUCKET, Prefix=prefix).get("Contents", [])
        return [item["Key"] for item in found]

    def read(self, key: str) -> str:
        text: str = self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read().decode()
        return text

    def states(self, name: str = "job") -> list[tuple[str, str]]:
        """Status and secondary status of each event so far, as they were published."""
        return [
            (event["detail"]["TrainingJobStatus"], event["detail"]["SecondaryStatus"])
            for event in list(self.events)
            if event["detail"]["TrainingJobName"] == name
        ]


ENDS = {"Completed", "Failed", "Stopped"}


def request(script: str, *, name: str = "job", **members: Any) -> dict[str, Any]:
    """The smallest useful CreateTrainingJob request around ``script``."""
    return {
        "TrainingJobName": name,
        "AlgorithmSpecification": {
            "TrainingImage": "123456789012.dkr.ecr.us-west-2.amazonaws.com/image:1",
            "TrainingInputMode": "File",
            "ContainerEntrypoint": ["/bin/bash", "-c"],
            "ContainerArguments": [script],
        },
        "RoleArn": "arn:aws:iam::123456789012:role/training-role",
        "OutputDataConfig": {
            "S3OutputPath": f"s3://{BUCKET}/out/",
            "CompressionType": "NONE",
        },
        "ResourceConfig": {"InstanceType": "ml.p6-b200.48xlarge", "InstanceCount": 1},
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **members,
    }


def s3_channel(name: str, uri: str) -> dict[str, Any]:
    return {
        "ChannelName": name,
        "DataSource": {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": uri}},
    }


def wait_until(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_true():
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def python(code: str) -> str:
    """A shell line that replaces the shell by Python running ``code``."""
    return f"exec python3 -c {shlex.quote(code)}"

"""One example of each tier, and the request its template gives once CloudFormation resolved it."""

from __future__ import annotations

import json
from typing import Any, Final

from aws_cdk import Stack
from aws_cdk.assertions import Template

from cdk_blackwell import LargeShardedJob, MidModelJob, ModelShape, SmallModelJob
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.request import render_request

ACCOUNT: Final = "123456789012"
REGION: Final = "us-west-2"
ZONE: Final = "us-west-2b"
PLAN: Final = f"arn:aws:sagemaker:{REGION}:{ACCOUNT}:training-plan/mine"
STACK_ID: Final = f"arn:aws:cloudformation:{REGION}:{ACCOUNT}:stack/Stack/0a1b2c3d"
KEY_ARN: Final = f"arn:aws:kms:{REGION}:{ACCOUNT}:key/11111111-2222-3333-4444-555555555555"

COMMON: Final[dict[str, Any]] = {
    "dataset_prefix": "tokens/",
    "sequence_length": 8192,
    "global_batch_tokens": 1_048_576,
    "train_tokens": 10_000_000_000,
    "packages_in_image": True,
    "waive_cost_ceiling": True,
}
SMALL: Final = {**COMMON, "model": ModelShape.preset("llama-3.2-1b")}
MID: Final = {**COMMON, "model": ModelShape.preset("llama-3.1-8b")}
LARGE: Final = {**COMMON, "model": ModelShape.preset("qwen2.5-32b")}

JOBS: Final[dict[str, tuple[type[Any], dict[str, Any]]]] = {
    "small": (SmallModelJob, {**SMALL, "instance_count": 1}),
    "mid": (MidModelJob, {**MID, "instance_count": 1}),
    "mid-two-nodes": (MidModelJob, {**MID, "instance_count": 2}),
    "large-sharded": (LargeShardedJob, {**LARGE, "instance_count": 2}),
}
"""By name: every way a job's checkpoints can lie, at least once."""

_SAMPLES: Final = (
    ("MountName", "abcdefgh"),
    ("SecurityGroup", "sg-0123456789abcdef0"),
    ("Subnet", "subnet-0123456789abcdef0"),
    ("FileSystem", "fs-0123456789abcdef0"),
    ("Key", KEY_ARN),
    ("Role", f"arn:aws:iam::{ACCOUNT}:role/training"),
    ("Secret", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:token-AbCdEf"),
    ("CheckpointStore", "checkpoint-bucket"),
    ("Dataset", "dataset-bucket"),
    ("Bucket", "other-bucket"),
    ("AWS::Region", REGION),
    ("AWS::URLSuffix", "amazonaws.com"),
    ("AWS::AccountId", ACCOUNT),
    ("AWS::Partition", "aws"),
    ("assets", f"cdk-hnb659fds-assets-{ACCOUNT}-{REGION}"),
)
"""What CloudFormation would give, by a part of the reference; the first match counts."""


def resolve(value: Any) -> str:
    """Join a value's parts as CloudFormation does."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        separator, parts = value["Fn::Join"]
        return str(separator).join(map(resolve, parts))
    text = json.dumps(value)
    return next(sample for part, sample in _SAMPLES if part in text)


def definition_of(stack: Stack) -> JobDefinition:
    """The stack's only job, as its controller will read it."""
    (run,) = Template.from_stack(stack).find_resources("Custom::CdkBlackwellRun").values()
    return JobDefinition.from_json(resolve(run["Properties"]["Definition"]))


def request_of(stack: Stack, *, run_id: str = "run-1", attempt: int = 1) -> dict[str, Any]:
    """The CreateTrainingJob request of the stack's only job, by the controller's own code."""
    return render_request(definition_of(stack), stack_id=STACK_ID, run_id=run_id, attempt=attempt)


def channels_of(request: dict[str, Any]) -> dict[str, Any]:
    """Data sources by channel."""
    return {channel["ChannelName"]: channel["DataSource"] for channel in request["InputDataConfig"]}

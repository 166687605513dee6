"""What the controller's function needs of its surroundings: IAM statements and its time limit.

Data only. The construct grants exactly these rows and nothing else; a test runs every path of the
handler and compares the calls it made with this table. ``{names}`` in a resource are filled by the
construct.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from cdk_blackwell.lifecycle.handler.happenings import EVENT_SOURCE

ResourceKind = Literal[
    "training_job",
    "training_plan",
    "training_role",
    "table",
    "bundle",
    "runs",
    "checkpoint_bucket",
    "dataset_manifest",
    "dataset_bucket",
    "storage_key",
    "topic",
    "topic_key",
    "event_bus",
    "network",
    "function",
    "utilization",
]

FUNCTION_TIMEOUT_SECONDS: Final = 900
"""Lambda's maximum. Longer waits continue in asynchronous invocations of the same function."""

FUNCTION_MEMORY_MIB: Final = 512
"""SageMaker's service model alone takes about 150 MiB when loaded."""


@dataclass(frozen=True, kw_only=True)
class Permission:
    """One IAM statement."""

    kind: ResourceKind
    actions: tuple[str, ...]
    resources: tuple[str, ...]
    """Templates of ARNs; ``{job}`` is the job's prefix, other names say what they stand for."""
    why: str
    conditions: dict[str, dict[str, str]] = field(default_factory=dict)


PERMISSIONS: Final = (
    Permission(
        kind="training_job",
        actions=(
            "sagemaker:CreateTrainingJob",
            "sagemaker:DescribeTrainingJob",
            "sagemaker:StopTrainingJob",
            "sagemaker:AddTags",
            "sagemaker:ListTags",
        ),
        # Eight digits of the stack's id, unknown before it exists, then run and attempt. SageMaker
        # writes some names in lower case in ARNs.
        resources=(
            "arn:{partition}:sagemaker:{region}:{account}:training-job/{job}-????????-*",
            "arn:{partition}:sagemaker:{region}:{account}:training-job/{job_lower_case}-????????-*",
        ),
        why="launch, observe and stop this job's attempts; tags tell whose a name is",
    ),
    Permission(
        kind="training_plan",
        actions=("sagemaker:CreateTrainingJob",),
        resources=("{training_plan_arn}",),
        why="a job that names a training plan is authorised on the plan as well",
    ),
    Permission(
        kind="training_plan",
        actions=("sagemaker:DescribeTrainingPlan",),
        resources=("{training_plan_arn}",),
        why="an attempt must end before the plan does",
    ),
    Permission(
        kind="training_role",
        actions=("iam:PassRole",),
        resources=("{training_role_arn}",),
        conditions={"StringEquals": {"iam:PassedToService": "sagemaker.amazonaws.com"}},
        why="SageMaker runs the job under the training role",
    ),
    Permission(
        kind="table",
        actions=(
            "dynamodb:GetItem",
            "dynamodb:PutItem",
            "dynamodb:UpdateItem",
            "dynamodb:DeleteItem",
            "dynamodb:Query",
            "dynamodb:ConditionCheckItem",
        ),
        resources=("{table_arn}",),
        why="desired state and claims; transactions are authorised by these same actions",
    ),
    Permission(
        kind="bundle",
        actions=("s3:GetObject",),
        resources=("arn:{partition}:s3:::{bundle_bucket}/{bundle_key}",),
        why="the bundle is copied into the run's prefix at launch",
    ),
    Permission(
        kind="runs",
        actions=("s3:GetObject", "s3:PutObject"),
        resources=("arn:{partition}:s3:::{checkpoint_bucket}/{job}/runs/*",),
        why="freeze run.json and the bundle; read progress.json",
    ),
    Permission(
        kind="runs",
        actions=("s3:DeleteObject",),
        resources=("arn:{partition}:s3:::{checkpoint_bucket}/{job}/runs/*/run.json",),
        why="a launch that SageMaker refused gives its run_id back",
    ),
    Permission(
        kind="checkpoint_bucket",
        actions=("s3:ListBucket",),
        resources=("arn:{partition}:s3:::{checkpoint_bucket}",),
        why="a missing object answers 404 instead of 403",
    ),
    Permission(
        kind="dataset_manifest",
        actions=("s3:GetObject",),
        resources=("arn:{partition}:s3:::{dataset_bucket}/{dataset_manifest_key}",),
        why="the dataset must exist before a launch",
    ),
    Permission(
        kind="dataset_bucket",
        actions=("s3:ListBucket",),
        resources=("arn:{partition}:s3:::{dataset_bucket}",),
        why="a missing manifest answers 404 instead of 403",
    ),
    Permission(
        kind="storage_key",
        actions=("kms:Decrypt", "kms:GenerateDataKey"),
        resources=("{storage_key_arn}",),
        why="objects in the checkpoint and dataset buckets, where encrypted by a key; in the asset "
        "bucket only where its own key is given as asset_key (the CDK's bootstrap makes none)",
    ),
    Permission(
        kind="topic",
        actions=("sns:Publish",),
        resources=("{topic_arn}",),
        why="tell people what happened",
    ),
    Permission(
        kind="topic_key",
        actions=("kms:Decrypt", "kms:GenerateDataKey"),
        resources=("{topic_key_arn}",),
        why="publish to an encrypted topic",
    ),
    Permission(
        kind="event_bus",
        actions=("events:PutEvents",),
        resources=("arn:{partition}:events:{region}:{account}:event-bus/default",),
        conditions={"StringEquals": {"events:source": EVENT_SOURCE}},
        why="tell other systems what happened",
    ),
    Permission(
        kind="network",
        actions=("ec2:DescribeNetworkInterfaces", "ec2:DescribeSecurityGroups"),
        resources=("*",),
        why="delete waits for the job's own interfaces in its security groups; EC2's describe "
        "calls cannot be limited to a resource",
    ),
    Permission(
        kind="function",
        actions=("lambda:InvokeFunction",),
        resources=("{function_arn}",),
        why="waits longer than the function's time continue in a new invocation of itself",
    ),
    Permission(
        kind="utilization",
        actions=("cloudwatch:GetMetricData",),
        resources=("*",),
        why="SageMaker's own GPU utilisation of the job's instances; CloudWatch does not limit "
        "reading to a namespace or a metric",
    ),
)

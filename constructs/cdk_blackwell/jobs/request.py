"""The CreateTrainingJob request of a job, with placeholders for what only a launch knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Token

from cdk_blackwell.compliance.service_model import Violation, check_training_request
from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.infrastructure.monitoring import metric_definitions
from cdk_blackwell.lifecycle.handler.definition import (
    PLACEHOLDER_ATTEMPT,
    PLACEHOLDER_JOB_NAME,
    PLACEHOLDER_RUN_ID,
    PLACEHOLDER_RUN_URI,
    JobDefinition,
)
from cdk_blackwell.lifecycle.handler.request import render_request
from cdk_blackwell.planning.contracts import (
    BUNDLE_FILE,
    CHANNEL_CODE,
    CHANNEL_CONFIG,
    CHANNEL_DATASET,
    CHECKPOINTS_FOLDER,
    CONTAINER_ARGUMENTS,
    CONTAINER_CHECKPOINTS,
    CONTAINER_ENTRYPOINT,
    ENV_ATTEMPT,
    ENV_CHECKPOINT_DIR,
    ENV_JOB,
    ENV_METRICS_NAMESPACE,
    ENV_RUN_ID,
    ENV_RUN_S3,
    ENV_TIER,
    EXPORT_FOLDER,
    METRICS_NAMESPACE,
    PLATFORM_ENVIRONMENT,
    RUN_FILE,
    Tier,
)

INSTANCE_TYPE: Final = "ml.p6-b200.48xlarge"
VOLUME_GIB: Final = 500
"""SageMaker asks for a size; training reads and writes local NVMe, which has its own."""
INTERNAL_ERROR_RETRIES: Final = 3
"""SageMaker's own retries, for its internal errors only; the controller handles the rest."""

RESERVED_ENVIRONMENT_PREFIX: Final = "CDKB_"


@dataclass(frozen=True, kw_only=True)
class RequestInputs:
    """Everything the request is made of. Strings may be CDK tokens."""

    job: str
    tier: Tier
    region: str
    image_uri: str
    role_arn: str
    subnet_id: str
    security_group_ids: Sequence[str]
    file_system_id: str
    dataset_directory: str
    """``/<MountName>/<path>`` on the file system."""
    output_key_arn: str | None
    capacity: Capacity
    instance_count: int
    max_runtime_seconds: int
    environment: Mapping[str, str]
    tags: Mapping[str, str]


def _s3_channel(name: str, uri: str) -> dict[str, Any]:
    return {
        "ChannelName": name,
        "DataSource": {
            "S3DataSource": {
                "S3DataType": "S3Prefix",
                "S3Uri": uri,
                "S3DataDistributionType": "FullyReplicated",
            }
        },
        "InputMode": "File",
    }


def build_request(inputs: RequestInputs) -> dict[str, Any]:
    """The request template that the controller completes for every attempt."""
    return {
        "TrainingJobName": PLACEHOLDER_JOB_NAME,
        "AlgorithmSpecification": {
            "TrainingImage": inputs.image_uri,
            "TrainingInputMode": "File",
            "ContainerEntrypoint": list(CONTAINER_ENTRYPOINT),
            "ContainerArguments": list(CONTAINER_ARGUMENTS),
            "MetricDefinitions": metric_definitions(),
        },
        "RoleArn": inputs.role_arn,
        "InputDataConfig": [
            _s3_channel(CHANNEL_CODE, f"{PLACEHOLDER_RUN_URI}/{BUNDLE_FILE}"),
            _s3_channel(CHANNEL_CONFIG, f"{PLACEHOLDER_RUN_URI}/{RUN_FILE}"),
            {
                "ChannelName": CHANNEL_DATASET,
                "DataSource": {
                    "FileSystemDataSource": {
                        "FileSystemId": inputs.file_system_id,
                        "FileSystemType": "FSxLustre",
                        "FileSystemAccessMode": "ro",
                        "DirectoryPath": inputs.dataset_directory,
                    }
                },
            },
        ],
        "OutputDataConfig": {
            "S3OutputPath": f"{PLACEHOLDER_RUN_URI}/{EXPORT_FOLDER}/",
            # A tar.gz of a large export keeps paid GPUs waiting for one core.
            "CompressionType": "NONE",
            **({"KmsKeyId": inputs.output_key_arn} if inputs.output_key_arn else {}),
        },
        "CheckpointConfig": {
            "S3Uri": f"{PLACEHOLDER_RUN_URI}/{CHECKPOINTS_FOLDER}/",
            "LocalPath": CONTAINER_CHECKPOINTS,
        },
        # No VolumeKmsKeyId: refused on types with local NVMe, whose hardware encrypts it.
        "ResourceConfig": {
            "InstanceType": INSTANCE_TYPE,
            "InstanceCount": inputs.instance_count,
            "VolumeSizeInGB": VOLUME_GIB,
            **inputs.capacity.resource_config(),
        },
        "VpcConfig": {
            "SecurityGroupIds": list(inputs.security_group_ids),
            "Subnets": [inputs.subnet_id],
        },
        "StoppingCondition": {
            "MaxRuntimeInSeconds": inputs.max_runtime_seconds,
            "MaxPendingTimeInSeconds": inputs.capacity.max_pending_seconds,
        },
        "RetryStrategy": {"MaximumRetryAttempts": INTERNAL_ERROR_RETRIES},
        "Environment": {
            **PLATFORM_ENVIRONMENT,
            # SageMaker sets AWS_REGION alone; boto3 in the container reads this name.
            "AWS_DEFAULT_REGION": inputs.region,
            **inputs.environment,
            ENV_JOB: inputs.job,
            ENV_TIER: inputs.tier,
            ENV_RUN_ID: PLACEHOLDER_RUN_ID,
            ENV_ATTEMPT: PLACEHOLDER_ATTEMPT,
            ENV_RUN_S3: PLACEHOLDER_RUN_URI,
            ENV_CHECKPOINT_DIR: CONTAINER_CHECKPOINTS,
            ENV_METRICS_NAMESPACE: METRICS_NAMESPACE,
        },
        "Tags": [{"Key": key, "Value": value} for key, value in sorted(inputs.tags.items())],
    }


def check_definition(definition: JobDefinition, run_id: str | None) -> None:
    """Refuse a definition whose rendered request breaks SageMaker's own limits.

    Rendered exactly as the controller will, with a sample stack, and a sample run where none is
    given; CDK tokens are skipped. ValueError lists every violation.
    """
    request = render_request(
        definition, stack_id="arn:aws:cloudformation:sample", run_id=run_id or "sample", attempt=1
    )
    violations: list[Violation] = check_training_request(request, is_unresolved=Token.is_unresolved)
    if violations:
        lines = "; ".join(map(str, violations))
        raise ValueError(f"the training job request breaks SageMaker's limits: {lines}")

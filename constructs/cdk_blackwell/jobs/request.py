"""The CreateTrainingJob request of a job, with placeholders for what only a launch knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Token
from aws_cdk import aws_secretsmanager as secretsmanager

from cdk_blackwell.compliance.service_model import Violation, check_training_request
from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.infrastructure.monitoring import metric_definitions
from cdk_blackwell.infrastructure.package_index import PackageIndex
from cdk_blackwell.jobs.checkpoints import Checkpoints
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
    CHANNEL_CHECKPOINTS,
    CHANNEL_CODE,
    CHANNEL_CONFIG,
    CHANNEL_DATASET,
    CHANNEL_INITIAL_WEIGHTS,
    ENV_ALLOW_TCP,
    ENV_ATTEMPT,
    ENV_CHECKPOINT_DIR,
    ENV_HUGGING_FACE_SECRET,
    ENV_JOB,
    ENV_METRICS_NAMESPACE,
    ENV_PACKAGE_INDEX,
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
THROUGH_SUBNET: Final = {"TrainingRepositoryAccessMode": "Vpc"}
"""How SageMaker reaches a registry that is not ECR; never tried."""
INTERNAL_ERROR_RETRIES: Final = 3
"""SageMaker's own retries, for its internal errors only; the controller handles the rest."""

RESERVED_ENVIRONMENT_PREFIX: Final = "CDKB_"


@dataclass(frozen=True, kw_only=True)
class RequestInputs:
    """Everything the request is made of. Strings may be CDK tokens."""

    job: str
    tier: Tier
    region: str
    account: str
    image_uri: str
    image_outside_ecr: bool
    """SageMaker then pulls it through the job's subnet."""
    role_arn: str
    subnet_id: str
    security_group_ids: Sequence[str]
    file_system_id: str
    dataset_directory: str
    """``/<MountName>/<path>`` on the file system."""
    checkpoints: Checkpoints
    initial_weights_uri: str | None
    """Hugging Face safetensors in S3 to start from; None starts from random weights."""
    channels: Sequence[Mapping[str, Any]]
    """More channels of the job's own."""
    entrypoint: Sequence[str]
    arguments: Sequence[str]
    package_index: PackageIndex | None
    """What the launcher installs from; None for the wheels in the bundle."""
    hugging_face_token: secretsmanager.ISecret | None
    """Where own scripts find a token; the token itself never stands in a request."""
    allow_tcp: bool
    """Whether the launcher lets several instances without EFA train over TCP."""
    encrypt_between_instances: bool
    output_key_arn: str | None
    capacity: Capacity
    instance_count: int
    max_runtime_seconds: int
    environment: Mapping[str, str]


def s3_channel(name: str, uri: str) -> dict[str, Any]:
    """A channel that copies objects below ``uri`` to every instance before training."""
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


def file_system_channel(
    name: str, *, file_system_id: str, directory: str, writable: bool
) -> dict[str, Any]:
    """A channel that mounts a directory of FSx for Lustre, ``/<MountName>/<path>``."""
    return {
        "ChannelName": name,
        "DataSource": {
            "FileSystemDataSource": {
                "FileSystemId": file_system_id,
                "FileSystemType": "FSxLustre",
                "FileSystemAccessMode": "rw" if writable else "ro",
                "DirectoryPath": directory,
            }
        },
    }


def build_request(inputs: RequestInputs) -> dict[str, Any]:
    """The request template that the controller completes for every attempt."""
    return {
        "TrainingJobName": PLACEHOLDER_JOB_NAME,
        "AlgorithmSpecification": {
            "TrainingImage": inputs.image_uri,
            **({"TrainingImageConfig": THROUGH_SUBNET} if inputs.image_outside_ecr else {}),
            "TrainingInputMode": "File",
            "ContainerEntrypoint": list(inputs.entrypoint),
            "ContainerArguments": list(inputs.arguments),
            "MetricDefinitions": metric_definitions(),
        },
        "RoleArn": inputs.role_arn,
        "InputDataConfig": _channels(inputs),
        "OutputDataConfig": {
            "S3OutputPath": f"{PLACEHOLDER_RUN_URI}/{EXPORT_FOLDER}/",
            # A tar.gz of a large export keeps paid GPUs waiting for one core.
            "CompressionType": "NONE",
            **({"KmsKeyId": inputs.output_key_arn} if inputs.output_key_arn else {}),
        },
        **inputs.checkpoints.sync(),
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
            **inputs.capacity.stopping_condition(),
        },
        **inputs.capacity.request_members(),
        **(
            {"EnableInterContainerTrafficEncryption": True}
            if inputs.encrypt_between_instances
            else {}
        ),
        "RetryStrategy": {"MaximumRetryAttempts": INTERNAL_ERROR_RETRIES},
        "Environment": _environment(inputs),
        "Tags": [],
    }


def _channels(inputs: RequestInputs) -> list[dict[str, Any]]:
    channels = [
        s3_channel(CHANNEL_CODE, f"{PLACEHOLDER_RUN_URI}/{BUNDLE_FILE}"),
        s3_channel(CHANNEL_CONFIG, f"{PLACEHOLDER_RUN_URI}/{RUN_FILE}"),
        file_system_channel(
            CHANNEL_DATASET,
            file_system_id=inputs.file_system_id,
            directory=inputs.dataset_directory,
            writable=False,
        ),
    ]
    if inputs.checkpoints.file_system_directory is not None:
        channels.append(
            file_system_channel(
                CHANNEL_CHECKPOINTS,
                file_system_id=inputs.file_system_id,
                directory=inputs.checkpoints.file_system_directory,
                writable=True,
            )
        )
    if inputs.initial_weights_uri is not None:
        channels.append(s3_channel(CHANNEL_INITIAL_WEIGHTS, inputs.initial_weights_uri))
    return [*channels, *map(dict, inputs.channels)]


def _environment(inputs: RequestInputs) -> dict[str, str]:
    secret, index = inputs.hugging_face_token, inputs.package_index
    return {
        **PLATFORM_ENVIRONMENT,
        # SageMaker sets AWS_REGION alone; boto3 in the container reads this name.
        "AWS_DEFAULT_REGION": inputs.region,
        **inputs.environment,
        **({} if secret is None else {ENV_HUGGING_FACE_SECRET: secret.secret_arn}),
        **({} if index is None else {ENV_PACKAGE_INDEX: index.environment_value(inputs.account)}),
        **({ENV_ALLOW_TCP: "1"} if inputs.allow_tcp else {}),
        ENV_JOB: inputs.job,
        ENV_TIER: inputs.tier,
        ENV_RUN_ID: PLACEHOLDER_RUN_ID,
        ENV_ATTEMPT: PLACEHOLDER_ATTEMPT,
        ENV_RUN_S3: PLACEHOLDER_RUN_URI,
        ENV_CHECKPOINT_DIR: inputs.checkpoints.container_directory,
        ENV_METRICS_NAMESPACE: METRICS_NAMESPACE,
    }


def check_definition(definition: JobDefinition, run_id: str | None) -> None:
    """Refuse a definition whose rendered request breaks SageMaker's own limits.

    Rendered exactly as the controller will, with a sample stack, and a sample run where none is
    given; CDK tokens are skipped. ValueError lists every violation.
    """
    request = render_request(
        definition, stack_id="arn:aws:cloudformation:sample", run_id=run_id or "sample", attempt=1
    )
    names = [channel.get("ChannelName") for channel in request.get("InputDataConfig", ())]
    twice = sorted({str(name) for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"channel {twice[0]!r} is there twice: {CHANNEL_CODE}, {CHANNEL_CONFIG}, "
            f"{CHANNEL_DATASET}, {CHANNEL_CHECKPOINTS} and {CHANNEL_INITIAL_WEIGHTS} are this "
            "library's own; give yours another name"
        )
    violations: list[Violation] = check_training_request(request, is_unresolved=_is_token)
    if violations:
        lines = "; ".join(map(str, violations))
        raise ValueError(f"the training job request breaks SageMaker's limits: {lines}")


def _is_token(value: object) -> bool:
    """As ``Token.is_unresolved``, asking Node only where it can be one: there are 250 values."""
    if isinstance(value, str):
        return "Token[" in value and Token.is_unresolved(value)
    if isinstance(value, int | float):
        # Tokens that stand for numbers are huge negative ones.
        return abs(value) > 1e200 and Token.is_unresolved(value)
    return not isinstance(value, dict | list) and Token.is_unresolved(value)

"""What the request is made of, gathered from a job whose parts are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aws_cdk import Stack
from aws_cdk import aws_secretsmanager as secretsmanager

from cdk_blackwell.infrastructure.package_index import PackageIndex
from cdk_blackwell.infrastructure.s3_prefix import S3Prefix
from cdk_blackwell.jobs.checkpoints import Checkpoints
from cdk_blackwell.jobs.checks import check_environment
from cdk_blackwell.jobs.extension_points import returned
from cdk_blackwell.jobs.request import RequestInputs

if TYPE_CHECKING:
    from cdk_blackwell.jobs.training_job import TrainingJob


def request_of(job: TrainingJob, **asked: Any) -> dict[str, Any]:
    """The job's request template, by its own method; arguments are those of ``request_inputs``."""
    template = job.request_template(request_inputs(job, **asked))
    return returned("request_template", template, dict)


def request_inputs(
    job: TrainingJob,
    *,
    dataset_prefix: str,
    checkpoints: Checkpoints,
    initial_weights: S3Prefix | None,
    package_index: PackageIndex | None,
    hugging_face_token: secretsmanager.ISecret | None,
    allow_tcp: bool,
    encrypt_between_instances: bool,
) -> RequestInputs:
    """Ask the job's extension points, and check what they add to the environment."""
    stack = Stack.of(job)
    commands = returned("entrypoint", job.entrypoint(), tuple)
    entrypoint, arguments = (returned("entrypoint", part, Sequence) for part in commands)
    environment = returned("container_environment", job.container_environment(), Mapping)
    return RequestInputs(
        job=job.job_name,
        tier=job.tier,
        region=stack.region,
        account=stack.account,
        image_uri=job.image.uri,
        image_outside_ecr=job.image.outside_ecr,
        role_arn=job.role.role_arn,
        subnet_id=job.subnet.subnet_id,
        security_group_ids=[job.security_group.security_group_id],
        file_system_id=job.file_system.file_system_id,
        dataset_directory=_directory(job, dataset_prefix),
        checkpoints=checkpoints,
        initial_weights_uri=initial_weights.uri if initial_weights else None,
        channels=returned("channels", job.channels(), Sequence),
        entrypoint=entrypoint,
        arguments=arguments,
        output_key_arn=job.encryption_key.key_arn if job.encryption_key else None,
        capacity=job.capacity,
        instance_count=job.instance_count,
        max_runtime_seconds=job.cost.runtime_seconds,
        environment=check_environment(environment),
        package_index=package_index,
        hugging_face_token=hugging_face_token,
        allow_tcp=allow_tcp,
        encrypt_between_instances=encrypt_between_instances,
    )


def _directory(job: TrainingJob, prefix: str) -> str:
    """``/<MountName>/<path>`` of a prefix of the dataset bucket."""
    files = job.file_system
    return f"/{files.mount_name}{files.dataset_path}/{prefix}".rstrip("/")

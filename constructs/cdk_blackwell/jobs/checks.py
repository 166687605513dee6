"""What a job refuses at synth: the value got, what is allowed, what to do. Tokens are skipped."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aws_cdk import Stack
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from cdk_blackwell.infrastructure.places import (
    DATASET_REGION,
    check_key_region,
    check_reachable,
    check_region,
    differ,
    zone_of,
)
from cdk_blackwell.infrastructure.s3_prefix import S3Prefix
from cdk_blackwell.jobs.interface import ImportedTrainingJob
from cdk_blackwell.jobs.request import RESERVED_ENVIRONMENT_PREFIX
from cdk_blackwell.planning.contracts import JOB_PREFIX_LENGTH, check_job_prefix, stack_output_name

if TYPE_CHECKING:
    from cdk_blackwell.jobs.training_job import TrainingJob

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY)(?:_|$)", re.IGNORECASE
)
"""Whole words, so that names such as TOKENIZERS_PARALLELISM pass."""
_HASH_LENGTH: Final = 6


def check_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Refuse names this library sets itself, and secrets."""
    for name in environment:
        if _SECRET_NAME.search(name):
            raise ValueError(
                f"environment variable {name!r} looks like a secret: a job's environment is shown "
                "in the template, in SageMaker's console and by DescribeTrainingJob. Keep it in "
                "AWS Secrets Manager and let the script read it there with the training role"
            )
        if name.startswith(RESERVED_ENVIRONMENT_PREFIX):
            raise ValueError(
                f"environment variable {name!r} is set by this library: names beginning with "
                f"{RESERVED_ENVIRONMENT_PREFIX} cannot be given"
            )
    return dict(environment)


def check_places(job: TrainingJob, initial_weights: S3Prefix | None) -> None:
    """The job's parts must lie where the job can reach them.

    Network and file system in the stack's region, buckets too, since SageMaker reads channels from
    its own region only; the subnet in the job's VPC and in the zone of the file system and of the
    plan. A subnet that is no part of a VPC construct (imported alone) does not know its VPC and is
    taken as it is.
    """
    stack = Stack.of(job)
    check_reachable("vpc", job.vpc, job.vpc.vpc_id, stack)
    check_key_region("encryption_key", job.encryption_key, stack)
    why = "SageMaker takes channels and keeps results in its own region only"
    check_region("checkpoint bucket", job.checkpoint_store.bucket, stack, why)
    check_region("dataset bucket", job.file_system.dataset_bucket, stack, DATASET_REGION)
    if initial_weights is not None:
        check_region("bucket of initial_weights", initial_weights.bucket, stack, why)
    owner = getattr(job.subnet.node.scope, "vpc_id", None)
    if owner is not None and stack.resolve(owner) != stack.resolve(job.vpc.vpc_id):
        raise ValueError(
            f"subnet {job.subnet.node.path} is not of vpc {job.vpc.node.path}: give a subnet of "
            "that VPC, or the subnet's own vpc"
        )
    here, there = zone_of(job.subnet), job.file_system.availability_zone
    if differ(here, there):
        raise ValueError(
            f"the file system is in {there}, the job's subnet in {here}: give a subnet of {there}, "
            f"or a file system in {here}"
        )
    plan = job.capacity.plan_availability_zone
    if plan is not None and differ(here, plan):
        raise ValueError(
            f"the training plan is in {plan}, the job's subnet in {here}: give a subnet and a "
            f"file system in {plan}, or a plan in {here}"
        )


def shared_warnings(
    stack: Stack,
    *,
    checkpoint_bucket: s3.IBucket,
    dataset_bucket: s3.IBucket,
    encryption_key: kms.IKey | None,
) -> list[str]:
    """What another account must allow for itself, because it cannot be done from here."""
    found = []
    for name, bucket in (("checkpoint", checkpoint_bucket), ("dataset", dataset_bucket)):
        owner = bucket.env.account
        if differ(owner, stack.account):
            found.append(
                f"the {name} bucket belongs to account {owner}: its bucket policy, and its key's, "
                f"must let the training role, the controller's role and FSx's service-linked role "
                f"of account {stack.account} in"
            )
    if encryption_key is not None and differ(owner := encryption_key.env.account, stack.account):
        found.append(
            f"encryption_key belongs to account {owner}: its policy must let account "
            f"{stack.account} use it, and FSx and CloudWatch for it"
        )
    return found


def job_name_of(job: TrainingJob, given: str | None) -> str:
    """``given``, or the construct's path with hyphens; ValueError for a name that is not usable.

    A longer path is cut, and of one in other scripts the Latin letters and digits are kept; both
    end in a hash of the path.
    """
    if given is not None:
        return check_job_prefix(given)
    path = job.node.path
    name = re.sub(r"[^A-Za-z0-9]+", "-", path).strip("-")
    if path.isascii() and len(name) <= JOB_PREFIX_LENGTH:
        return name
    digest = hashlib.sha256(path.encode()).hexdigest()[:_HASH_LENGTH]
    kept = name[: JOB_PREFIX_LENGTH - _HASH_LENGTH - 1].rstrip("-")
    return f"{kept}-{digest}" if kept else digest


def check_unique_job(job: TrainingJob) -> None:
    """Two jobs of one app must not share names of training jobs or a prefix in S3.

    Nor may one name continue the other after a hyphen: events and rights are told apart by the
    beginning of a training job's name. SageMaker writes some names in lower case. An imported job
    is somebody's reference to a job, not another one.
    """
    name = job.job_name.lower()
    for other in job.node.root.node.find_all():
        if other is job or isinstance(other, ImportedTrainingJob):
            continue
        if not isinstance(other_name := getattr(other, "job_name", None), str):
            continue
        shared = stack_output_name(other_name) == stack_output_name(job.job_name)
        if shared and Stack.of(other) is Stack.of(job) and other_name.lower() != name:
            raise ValueError(
                f"job_name {other_name!r} of {other.node.path} and {job.job_name!r} of "
                f"{job.node.path} give one stack output, {stack_output_name(other_name)}, since "
                "outputs take no hyphens: give one of them another name, or another stack"
            )
        if other_name.lower() == name:
            raise ValueError(
                f"job_name {job.job_name!r} is used by {other.node.path} and {job.node.path}: "
                "give each job its own, with more than letter case between them"
            )
        short, long = sorted((other_name, job.job_name), key=len)
        if long.lower().startswith(f"{short.lower()}-"):
            raise ValueError(
                f"job_name {long!r} begins with job_name {short!r} and a hyphen, so that events of "
                f"one job would reach the other ({other.node.path} and {job.node.path}): "
                f"give job_name=... to one of them, for example {short + '2'!r}"
            )

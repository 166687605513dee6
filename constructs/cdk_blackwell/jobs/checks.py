"""What a job refuses at synth: the value got, what is allowed, what to do. Tokens are skipped."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aws_cdk import Stack, Token
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3

from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.infrastructure.file_system import ISharedFileSystem
from cdk_blackwell.jobs.interface import ImportedTrainingJob
from cdk_blackwell.jobs.request import RESERVED_ENVIRONMENT_PREFIX
from cdk_blackwell.planning.contracts import JOB_PREFIX_LENGTH

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


def check_subnet(
    stack: Stack,
    vpc: ec2.IVpc,
    subnet: ec2.ISubnet,
    file_system: ISharedFileSystem,
    capacity: Capacity,
) -> None:
    """The subnet must be of the job's VPC and in the zone of the file system and of the plan.

    A subnet that is no part of a VPC construct (imported alone) does not know its VPC and is taken
    as it is.
    """
    owner = getattr(subnet.node.scope, "vpc_id", None)
    if owner is not None and stack.resolve(owner) != stack.resolve(vpc.vpc_id):
        raise ValueError(
            f"subnet {subnet.node.path} is not of vpc {vpc.node.path}: give a subnet of that VPC, "
            "or the subnet's own vpc"
        )
    here, there = subnet.availability_zone, file_system.availability_zone
    if _differ(here, there):
        raise ValueError(
            f"the file system is in {there}, the job's subnet in {here}: give a subnet of {there}, "
            f"or a file system in {here}"
        )
    plan = capacity.plan_availability_zone
    if plan is not None and _differ(here, plan):
        raise ValueError(
            f"the training plan is in {plan}, the job's subnet in {here}: give a subnet and a "
            f"file system in {plan}, or a plan in {here}"
        )


def _differ(here: str, there: str) -> bool:
    return not Token.is_unresolved(here) and not Token.is_unresolved(there) and here != there


def shared_warnings(
    stack: Stack, *, checkpoint_bucket: s3.IBucket, dataset_bucket: s3.IBucket
) -> list[str]:
    """What another account must allow for itself, because it cannot be done from here."""
    found = []
    for name, bucket in (("checkpoint", checkpoint_bucket), ("dataset", dataset_bucket)):
        owner = bucket.env.account
        if _differ(owner, stack.account):
            found.append(
                f"the {name} bucket belongs to account {owner}: its bucket policy, and its key's, "
                f"must let the training role, the controller's role and FSx's service-linked role "
                f"of account {stack.account} in"
            )
    return found


def default_job_name(job: TrainingJob) -> str:
    """The construct's path with hyphens; a longer one is cut and ends in a hash of itself."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", job.node.path).strip("-")
    if len(name) <= JOB_PREFIX_LENGTH:
        return name
    digest = hashlib.sha256(job.node.path.encode()).hexdigest()[:_HASH_LENGTH]
    kept = name[: JOB_PREFIX_LENGTH - _HASH_LENGTH - 1].rstrip("-")
    return f"{kept}-{digest}"


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

"""What a job refuses at synth: the value got, what is allowed, what to do. Tokens are skipped."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from aws_cdk import Stack, Token
from aws_cdk import aws_ec2 as ec2

from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.infrastructure.file_system import ISharedFileSystem
from cdk_blackwell.jobs.request import RESERVED_ENVIRONMENT_PREFIX
from cdk_blackwell.planning.contracts import JOB_PREFIX_LENGTH
from cdk_blackwell.planning.cost import worst_case_usd
from cdk_blackwell.planning.errors import DoesNotFitError

if TYPE_CHECKING:
    from cdk_blackwell.jobs.training_job import TrainingJob

MAX_RUNTIME_SECONDS: Final = 28 * 86_400
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY)(?:_|$)", re.IGNORECASE
)
"""Whole words, so that names such as TOKENIZERS_PARALLELISM pass."""
_HASH_LENGTH: Final = 6
_PREFIX = re.compile(r"(?:[A-Za-z0-9!_.'()*-]+/)*")


def normalise_dataset_prefix(prefix: str) -> str:
    """``tokens`` and ``tokens/`` both give ``tokens/``; the empty prefix is the whole bucket."""
    if Token.is_unresolved(prefix):
        raise ValueError("dataset_prefix must be known at synth: give it as text, not as a token")
    normal = prefix if prefix in ("", "/") or prefix.endswith("/") else f"{prefix}/"
    normal = "" if normal == "/" else normal
    parts = normal.split("/")
    if not _PREFIX.fullmatch(normal) or ".." in parts or "." in parts:
        raise ValueError(
            f"dataset_prefix {prefix!r} is not usable: give folders of letters, digits and "
            "!_.'()*- separated by single slashes, without one at the start, for example tokens/"
        )
    return normal


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


def check_cost(
    *,
    capacity: Capacity,
    max_runtime_seconds: int,
    max_attempts: int,
    instance_count: int,
    hourly_price_usd: float | None,
    max_cost_usd: float | None,
) -> None:
    """Refuse a job whose attempts, all running as long as they may, pass the ceiling.

    Under a training plan the instances are paid with the plan; then no ceiling can be checked.
    """
    if not 60 <= max_runtime_seconds <= MAX_RUNTIME_SECONDS:
        raise ValueError(
            f"max_runtime of {max_runtime_seconds} s is not allowed: give 60 s to "
            f"{MAX_RUNTIME_SECONDS} s (28 days; accounts begin with a quota of 5 days)"
        )
    if not 1 <= max_attempts <= 999:
        raise ValueError(f"max_attempts {max_attempts} is not allowed: give 1 to 999")
    for name, value in (("hourly_price_usd", hourly_price_usd), ("max_cost_usd", max_cost_usd)):
        if value is not None and value <= 0:
            raise ValueError(f"{name} {value} is not allowed: give more than 0, or leave it out")
    if max_cost_usd is None:
        return
    if capacity.training_plan_arn is not None:
        raise ValueError(
            "max_cost_usd cannot be checked under a training plan, whose fee is paid whether the "
            "job runs or not: leave it out"
        )
    if hourly_price_usd is None:
        raise ValueError(
            f"max_cost_usd {max_cost_usd:,.2f} needs hourly_price_usd, the price of one instance "
            "per hour in your region: give it"
        )
    attempt = worst_case_usd(
        max_runtime_seconds=max_runtime_seconds,
        instance_count=instance_count,
        hourly_price_usd=hourly_price_usd,
    )
    worst = attempt * max_attempts
    if worst > max_cost_usd:
        raise DoesNotFitError(
            f"the job can cost {worst:,.2f} USD, more than max_cost_usd {max_cost_usd:,.2f}: "
            f"{max_attempts} attempts of up to {max_runtime_seconds / 3600:,.1f} hours on "
            f"{instance_count} instance(s) at {hourly_price_usd:,.2f} USD per hour. "
            "Lower max_runtime, max_attempts or instance_count, or raise max_cost_usd"
        )


def check_subnet(
    stack: Stack, vpc: ec2.IVpc, subnet: ec2.ISubnet, file_system: ISharedFileSystem
) -> None:
    """The subnet must be of the job's VPC and in the zone of the file system.

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
    if Token.is_unresolved(here) or Token.is_unresolved(there) or here == there:
        return
    raise ValueError(
        f"the file system is in {there}, the job's subnet in {here}: give a subnet of {there}, "
        f"or a file system in {here}"
    )


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
    beginning of a training job's name. SageMaker writes some names in lower case.
    """
    name = job.job_name.lower()
    for other in job.node.root.node.find_all():
        if other is job or not isinstance(other_name := getattr(other, "job_name", None), str):
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

"""Deployed jobs, found by the output that each writes into its stack: ``CdkBlackwell<Job>``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from cdk_blackwell.deployed.errors import CommandError
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.planning.contracts import STACK_OUTPUT_PREFIX, StackOutput


@dataclass(frozen=True, kw_only=True)
class DeployedJob:
    """A job and where it lives."""

    stack: str
    stack_id: str
    output: StackOutput

    @property
    def words(self) -> str:
        """The options that name it."""
        return f"--stack {self.stack} --job {self.output.job}"


def find_job(aws: Aws, stack: str | None, job: str | None) -> DeployedJob:
    """The one job that ``stack`` and ``job`` name; CommandError where there is none, or several.

    :param stack: name or ARN. None: all stacks of the region are looked at.
    :param job: the job's name, as in its training jobs' names. None: the only one.
    """
    found = deployed_jobs(aws, stack)
    where = f"stack {stack!r}" if stack else f"region {aws.region}"
    if not found:
        raise CommandError(
            f"no job of cdk-blackwell is deployed in {where}: run 'cdk deploy', or give another "
            "--stack, --region or --profile"
        )
    fitting = [each for each in found if job in (None, each.output.job)]
    if len(fitting) == 1:
        return fitting[0]
    if not fitting:
        raise CommandError(f"no job {job!r} in {where}: allowed are {_choices(found)}")
    raise CommandError(f"several jobs are deployed in {where}: choose one of {_choices(fitting)}")


def deployed_jobs(aws: Aws, stack: str | None = None) -> list[DeployedJob]:
    """Every job of one stack, or of the region, in the order of CloudFormation's list."""
    pages = aws.client("cloudformation").get_paginator("describe_stacks")
    arguments = {"StackName": stack} if stack else {}
    try:
        stacks = [each for page in pages.paginate(**arguments) for each in page["Stacks"]]
    except ClientError as error:
        if "does not exist" not in str(error):
            raise
        raise CommandError(
            f"stack {stack!r} is not deployed in {aws.region}: 'cdk-blackwell runs' without "
            "--stack finds the region's jobs"
        ) from error
    return [job for each in stacks for job in _jobs_of(each)]


def _jobs_of(stack: Mapping[str, Any]) -> Iterator[DeployedJob]:
    if stack["StackStatus"] == "DELETE_COMPLETE":
        return
    for output in stack.get("Outputs", []):
        key, value = output["OutputKey"], output["OutputValue"]
        if not key.startswith(STACK_OUTPUT_PREFIX) or not value.startswith("{"):
            continue
        try:
            read = StackOutput.from_json(value)
        except ValueError as error:
            raise CommandError(f"stack {stack['StackName']}: {error}") from error
        yield DeployedJob(stack=stack["StackName"], stack_id=stack["StackId"], output=read)


def _choices(jobs: Sequence[DeployedJob]) -> str:
    return ", ".join(f"'{job.words}'" for job in jobs)

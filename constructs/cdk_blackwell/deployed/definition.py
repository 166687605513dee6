"""What the controller of a deployed job would launch, read from its table."""

from __future__ import annotations

from cdk_blackwell.deployed.errors import AwsRefusedError
from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.lifecycle.handler.clock import Clock
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.store import Store
from cdk_blackwell.lifecycle.handler.table import Table


def store_of(aws: Aws, job: DeployedJob) -> Store:
    """The controller's table; nothing here writes to it."""
    return Store(table=Table(dynamodb=aws.client("dynamodb"), name=job.output.table, clock=Clock()))


def read_definition(aws: Aws, job: DeployedJob) -> JobDefinition:
    """The definition of the newest deploy; AwsRefusedError when there is none to read."""
    for owner in store_of(aws, job).owners():
        if owner.desired == "deleted" or not owner.definition:
            continue
        try:
            return JobDefinition.from_json(owner.definition)
        except ValueError as error:
            raise AwsRefusedError(
                f"the definition of job {job.output.job!r} cannot be read ({error}): stack "
                f"{job.stack} was deployed with another version of cdk-blackwell"
            ) from error
    raise AwsRefusedError(
        f"the controller of job {job.output.job!r} holds no definition: stack {job.stack} is being "
        "created or deleted"
    )

"""The controller's collaborators, put together once per process; none of them remembers anything.

``AWS_DATA_PATH`` (set by the construct) makes botocore load the SageMaker service model that
travels with the function, so that new request fields never depend on the runtime's own boto3.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import boto3
from botocore.config import Config

from cdk_blackwell.lifecycle.handler.clock import Clock
from cdk_blackwell.lifecycle.handler.definition import ENV_TABLE, ENV_TOPIC
from cdk_blackwell.lifecycle.handler.jobs import Jobs
from cdk_blackwell.lifecycle.handler.network import Network
from cdk_blackwell.lifecycle.handler.notify import Notifier
from cdk_blackwell.lifecycle.handler.origin import Origin
from cdk_blackwell.lifecycle.handler.storage import Storage
from cdk_blackwell.lifecycle.handler.store import Store
from cdk_blackwell.lifecycle.handler.table import Table

_CONFIG: Final = Config(
    connect_timeout=5, read_timeout=30, retries={"mode": "standard", "total_max_attempts": 5}
)


@dataclass(frozen=True, kw_only=True)
class Services:
    """What the handler works with."""

    table: Table
    store: Store
    jobs: Jobs
    storage: Storage
    network: Network
    notifier: Notifier
    functions: Any
    """Lambda client, for the function's own continuation."""
    cloudwatch: Any
    """CloudWatch client, for SageMaker's own metrics of a job's instances."""
    origin: Origin
    clock: Clock = field(default_factory=Clock)

    @classmethod
    def assemble(
        cls, clients: Mapping[str, Any], *, table: str, topic: str, origin: Origin, clock: Clock
    ) -> Services:
        """From one client per service name."""
        rows = Table(dynamodb=clients["dynamodb"], name=table, clock=clock)
        return cls(
            table=rows,
            store=Store(table=rows),
            jobs=Jobs(sagemaker=clients["sagemaker"], clock=clock),
            storage=Storage(s3=clients["s3"]),
            network=Network(ec2=clients["ec2"]),
            notifier=Notifier(sns=clients["sns"], events=clients["events"], topic=topic),
            functions=clients["lambda"],
            cloudwatch=clients["cloudwatch"],
            origin=origin,
            clock=clock,
        )

    @classmethod
    def from_environment(cls) -> Services:
        """In Lambda: clients of the function's own region and role."""
        names = ("dynamodb", "sagemaker", "s3", "ec2", "sns", "events", "lambda", "cloudwatch")
        session: Any = boto3.session.Session()
        return cls.assemble(
            {name: session.client(name, config=_CONFIG) for name in names},
            table=os.environ[ENV_TABLE],
            topic=os.environ[ENV_TOPIC],
            origin=Origin.from_environment(),
            clock=Clock(),
        )

    def continue_later(self, function_arn: str, event: Mapping[str, Any]) -> None:
        """Invoke this same function again, asynchronously."""
        self.functions.invoke(
            FunctionName=function_arn,
            InvocationType="Event",
            Payload=json.dumps(event).encode(),
        )

"""Instances of a job have no public address."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Jobs in subnets that give out public addresses."""
    for request in training_requests(templates):
        for value in request.subnets:
            subnet = templates.target(value, request.resource.template)
            if subnet is not None and subnet.find("MapPublicIpOnLaunch") in (True, "true"):
                yield Finding(
                    resource=request.resource,
                    found=f"the job runs in {subnet.logical_id}, a public subnet",
                    where=f"{request.where}/VpcConfig/Subnets",
                )


RULE = Rule(
    id="PublicSubnet",
    title="Jobs run in private subnets.",
    why=(
        "SageMaker's interfaces get no public address, so an internet gateway's route leads "
        "nowhere: S3 and package downloads time out although the subnet looks connected."
    ),
    fix="Use an isolated subnet with an S3 gateway endpoint, or a private one with NAT.",
    severity="error",
    check=check,
)

"""A job in a VPC without NAT reaches S3 through a gateway endpoint."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.routes import leads_out, s3_gateway
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Subnets of jobs whose routes are known and lead neither out nor to S3."""
    for request in training_requests(templates):
        for value in request.subnets:
            subnet = templates.target(value, request.resource.template)
            if subnet is None or subnet.type != "AWS::EC2::Subnet":
                continue
            if not leads_out(templates, subnet) and not s3_gateway(templates, subnet):
                yield Finding(
                    resource=request.resource,
                    found=f"{subnet.logical_id} has no route out and no S3 gateway endpoint",
                    where=f"{request.where}/VpcConfig/Subnets",
                )


RULE = Rule(
    id="S3Endpoint",
    title="A job's subnet has a way to S3.",
    why=(
        "Channels, checkpoints and the export pass through the job's own interfaces; without "
        "a way to S3 the job hangs in Downloading until its time is up."
    ),
    fix=(
        "Add a gateway endpoint for S3 to the subnet's route table (TrainingNetwork does); it"
        " is free."
    ),
    severity="error",
    check=check,
)

"""The VPC endpoints that stand in for NAT, each with the caller that needs it.

SageMaker pulls the image and ships the logs from its own side of the network, and S3 calls KMS
itself for encrypted objects; none of these passes through the job's interfaces, so none needs an
endpoint here. The trainer itself calls S3 only. The controller's Lambda runs outside the VPC.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from aws_cdk import aws_ec2 as ec2


@dataclass(frozen=True, kw_only=True)
class GatewayEndpoint:
    """A gateway endpoint: free, a route to the service's public addresses."""

    construct_id: str
    service: ec2.GatewayVpcEndpointAwsService
    why: str


@dataclass(frozen=True, kw_only=True)
class InterfaceEndpoint:
    """An interface endpoint: an address in the subnet, billed by the hour."""

    construct_id: str
    service: ec2.InterfaceVpcEndpointAwsService
    why: str


GATEWAY_ENDPOINTS: Final = (
    GatewayEndpoint(
        construct_id="S3",
        service=ec2.GatewayVpcEndpointAwsService.S3,
        why="channels, checkpoint sync, progress.json and the export: S3 is reached through the "
        "job's interfaces",
    ),
)

INTERFACE_ENDPOINTS: Final = {
    "monitoring": InterfaceEndpoint(
        construct_id="Monitoring",
        service=ec2.InterfaceVpcEndpointAwsService.CLOUDWATCH_MONITORING,
        why="PutMetricData by own scripts, to the namespace in CDKB_METRICS_NAMESPACE; this "
        "library's own trainer does not need it, its metrics travel in the log",
    ),
    "codeartifact-api": InterfaceEndpoint(
        construct_id="CodeArtifactApi",
        service=ec2.InterfaceVpcEndpointAwsService.CODEARTIFACT_API,
        why="own scripts that fetch a token for a CodeArtifact repository of Python packages",
    ),
    "codeartifact-repositories": InterfaceEndpoint(
        construct_id="CodeArtifactRepositories",
        service=ec2.InterfaceVpcEndpointAwsService.CODEARTIFACT_REPOSITORIES,
        why="pip installs from a CodeArtifact repository, beside codeartifact-api",
    ),
    "secretsmanager": InterfaceEndpoint(
        construct_id="SecretsManager",
        service=ec2.InterfaceVpcEndpointAwsService.SECRETS_MANAGER,
        why="own scripts that read the secret given as hugging_face_token",
    ),
    "sts": InterfaceEndpoint(
        construct_id="Sts",
        service=ec2.InterfaceVpcEndpointAwsService.STS,
        why="own scripts that assume another role, for example to read another account's data",
    ),
}
"""By the name that ``TrainingNetwork`` takes."""
DEFAULT_INTERFACE_ENDPOINTS: Final = ("monitoring",)

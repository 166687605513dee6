"""Where a subnet's traffic can go, as far as templates say."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cdk_blackwell.compliance.templates import Resource, Templates, as_list, is_intrinsic

_WAYS_OUT = (
    "NatGatewayId",
    "TransitGatewayId",
    "NetworkInterfaceId",
    "InstanceId",
    "VpcPeeringConnectionId",
    "GatewayId",
)


def leads_out(templates: Templates, subnet: Resource) -> bool:
    """Whether the subnet has a way beyond its VPC; true where its routes are not known.

    A subnet without a table of its own follows the VPC's main one, which no template shows.
    """
    tables = list(_tables(templates, subnet))
    if subnet.type != "AWS::EC2::Subnet" or not tables:
        return True
    return any(
        templates.target(route.find("RouteTableId"), route.template) in tables
        and any(route.find(name) is not None for name in _WAYS_OUT)
        for route in templates.resources("AWS::EC2::Route")
    )


def s3_gateway(templates: Templates, subnet: Resource) -> bool:
    """Whether a gateway endpoint of S3 is in one of the subnet's route tables."""
    tables = list(_tables(templates, subnet))
    return any(
        ".s3" in json.dumps(endpoint.find("ServiceName"))
        and any(
            (target := templates.target(value, endpoint.template)) in tables
            or (target is None and is_intrinsic(value))
            for value in as_list(endpoint.find("RouteTableIds"))
        )
        for endpoint in templates.resources("AWS::EC2::VPCEndpoint")
    )


def codeartifact(templates: Templates, subnet: Resource) -> bool:
    """Whether the subnet's VPC has an interface endpoint of CodeArtifact's repositories."""
    vpc = templates.target(subnet.find("VpcId"), subnet.template)
    return any(
        ".codeartifact" in json.dumps(endpoint.find("ServiceName"))
        and templates.target(endpoint.find("VpcId"), endpoint.template) is vpc
        for endpoint in templates.resources("AWS::EC2::VPCEndpoint")
    )


def _tables(templates: Templates, subnet: Resource) -> Iterator[Resource]:
    for association in templates.resources("AWS::EC2::SubnetRouteTableAssociation"):
        if templates.target(association.find("SubnetId"), association.template) is subnet:
            table = templates.target(association.find("RouteTableId"), association.template)
            if table is not None:
                yield table

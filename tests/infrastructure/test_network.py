"""A network of one's own: what it makes, and what it refuses before AWS would."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk.assertions import Match, Template

from cdk_blackwell import TrainingNetwork
from cdk_blackwell.infrastructure.endpoints import GATEWAY_ENDPOINTS, INTERFACE_ENDPOINTS
from cdk_blackwell.infrastructure.network import check_availability_zone


@pytest.fixture
def stack() -> Stack:
    return Stack(App(), "Stack", env=Environment(region="us-west-2"))


@pytest.mark.parametrize(
    ("zone", "region"),
    [
        ("us-west-2b", "us-west-2"),
        ("us-gov-west-1a", "us-gov-west-1"),
        ("us-west-2-lax-1a", "us-west-2"),
        ("us-east-1-dfw-2a", "us-east-1"),
        ("ap-southeast-2c", "${Token[AWS.Region.4]}"),
        ("${Token[AZ.4]}", "us-west-2"),
    ],
)
def test_zones_of_the_region_are_taken_and_tokens_not_judged(zone: str, region: str) -> None:
    assert check_availability_zone(zone, region) == zone


@pytest.mark.parametrize("zone", ["", "us-west-2", "usw2-az1", "us-west-2bb", "US-WEST-2B"])
def test_what_is_no_zone_is_refused(zone: str) -> None:
    with pytest.raises(ValueError, match="is not one: give a zone's name"):
        check_availability_zone(zone, "us-west-2")


@pytest.mark.parametrize(
    ("cidr", "reason"), [("10.0.0.0", "/32"), ("10.0.0.1/16", "host bits"), ("x", "IPv4")]
)
def test_an_address_range_must_hold_a_network(stack: Stack, cidr: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        TrainingNetwork(stack, "Network", availability_zone="us-west-2b", cidr=cidr)


def test_a_long_path_gives_names_within_ec2s_limit() -> None:
    stack = Stack(App(), "S" * 128, env=Environment(region="us-west-2"))
    TrainingNetwork(stack, "N" * 200, availability_zone="us-west-2b")
    for kind in ("AWS::EC2::VPC", "AWS::EC2::Subnet", "AWS::EC2::RouteTable"):
        for found in Template.from_stack(stack).find_resources(kind).values():
            (name,) = (tag["Value"] for tag in found["Properties"]["Tags"] if tag["Key"] == "Name")
            assert len(name) == 256


def test_the_subnet_takes_the_first_quarter(stack: Stack) -> None:
    TrainingNetwork(stack, "Network", availability_zone="us-west-2b", cidr="10.1.0.0/20")
    Template.from_stack(stack).has_resource_properties(
        "AWS::EC2::Subnet", {"CidrBlock": "10.1.0.0/22", "MapPublicIpOnLaunch": False}
    )


def test_every_endpoint_has_its_reason_and_its_resource(stack: Stack) -> None:
    TrainingNetwork(
        stack,
        "Network",
        availability_zone="us-west-2b",
        interface_endpoints=tuple(INTERFACE_ENDPOINTS),
    )
    reasons = [each.why for each in GATEWAY_ENDPOINTS]
    reasons += [each.why for each in INTERFACE_ENDPOINTS.values()]
    assert all(len(why) > 20 for why in reasons)
    Template.from_stack(stack).resource_count_is("AWS::EC2::VPCEndpoint", len(reasons))


def test_endpoints_that_are_billed_can_be_left_out(stack: Stack) -> None:
    TrainingNetwork(stack, "Network", availability_zone="us-west-2b", interface_endpoints=())
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::EC2::VPCEndpoint", len(GATEWAY_ENDPOINTS))


def test_an_unknown_endpoint_is_refused(stack: Stack) -> None:
    with pytest.raises(ValueError, match="'logs' is not offered: give some of codeartifact-api"):
        TrainingNetwork(
            stack, "Network", availability_zone="us-west-2b", interface_endpoints=("logs",)
        )


def test_there_is_no_way_out_unless_asked_for(stack: Stack) -> None:
    TrainingNetwork(stack, "Network", availability_zone="us-west-2b")
    template = Template.from_stack(stack)
    for kind in ("InternetGateway", "NatGateway", "EIP", "Route"):
        template.resource_count_is(f"AWS::EC2::{kind}", 0)


@pytest.fixture
def with_nat(stack: Stack) -> Template:
    TrainingNetwork(stack, "Network", availability_zone="us-west-2b", cidr="10.1.0.0/16", nat=True)
    return Template.from_stack(stack)


def ids(template: Template, kind: str) -> dict[str, Any]:
    found = template.find_resources(f"AWS::EC2::{kind}")
    assert isinstance(found, dict)
    return found


def test_nat_lies_in_a_public_subnet_at_the_end_of_the_range(with_nat: Template) -> None:
    with_nat.has_resource_properties("AWS::EC2::Subnet", {"CidrBlock": "10.1.255.240/28"})
    ((public, _),) = (
        item
        for item in ids(with_nat, "Subnet").items()
        if item[1]["Properties"]["CidrBlock"].endswith("/28")
    )
    with_nat.has_resource_properties("AWS::EC2::NatGateway", {"SubnetId": {"Ref": public}})


def test_the_private_subnet_goes_out_by_nat_and_the_public_one_by_the_gateway(
    with_nat: Template,
) -> None:
    (nat,) = ids(with_nat, "NatGateway")
    (gateway,) = ids(with_nat, "InternetGateway")
    for target in ({"NatGatewayId": {"Ref": nat}}, {"GatewayId": {"Ref": gateway}}):
        with_nat.has_resource_properties(
            "AWS::EC2::Route", {"DestinationCidrBlock": "0.0.0.0/0", **target}
        )
    # The public subnet gives no public addresses: only the NAT gateway has one.
    with_nat.all_resources_properties("AWS::EC2::Subnet", {"MapPublicIpOnLaunch": False})


def test_the_gateway_is_attached_before_anything_goes_through_it(with_nat: Template) -> None:
    (attachment,) = ids(with_nat, "VPCGatewayAttachment")
    for kind in ("NatGateway", "EIP"):
        with_nat.has_resource(f"AWS::EC2::{kind}", {"DependsOn": Match.array_with([attachment])})


def test_data_does_not_pay_for_nat(with_nat: Template) -> None:
    with_nat.has_resource_properties("AWS::EC2::VPCEndpoint", {"VpcEndpointType": "Gateway"})


def test_a_job_outlives_neither_endpoints_nor_routes(stack: Stack) -> None:
    network = TrainingNetwork(stack, "Network", availability_zone="us-west-2b", nat=True)
    kinds = {type(part).__name__ for part in network.ready}
    assert {"GatewayVpcEndpoint", "InterfaceVpcEndpoint", "CfnRoute"} <= kinds


def test_a_network_that_exists_is_used_as_it_is(stack: Stack) -> None:
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-west-2b"]
    )
    subnet = ec2.Subnet.from_subnet_attributes(
        stack, "Subnet", subnet_id="subnet-1", availability_zone="us-west-2b"
    )
    network = TrainingNetwork.from_subnet(vpc=vpc, subnet=subnet)
    assert (network.vpc, network.subnet) == (vpc, subnet)
    assert network.availability_zone == "us-west-2b"
    assert network.ready == []

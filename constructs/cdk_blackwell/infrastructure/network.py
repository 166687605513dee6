"""A VPC for training: one private subnet in one availability zone, endpoints instead of NAT."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from aws_cdk import Acknowledgment, Aws, RemovalPolicy, Stack, Tags, Token, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_logs as logs
from constructs import Construct, IDependable

from cdk_blackwell.infrastructure.endpoints import (
    DEFAULT_INTERFACE_ENDPOINTS,
    GATEWAY_ENDPOINTS,
    INTERFACE_ENDPOINTS,
)
from cdk_blackwell.infrastructure.kinds import check_kinds
from cdk_blackwell.infrastructure.places import zone_of

DEFAULT_CIDR: Final = "10.64.0.0/16"
SUBNET_PREFIX_EXTRA: Final = 2
"""The subnet takes the first quarter of the VPC; three quarters stay free for other use."""
EVERYWHERE: Final = "0.0.0.0/0"
TAG_VALUE_LENGTH: Final = 256
"""Of EC2's tags."""
PUBLIC_PREFIX: Final = 28
"""The NAT gateway's subnet: the last 16 addresses of the VPC."""

_ZONE = re.compile(
    r"(?P<region>[a-z]{2}(?:-[a-z]+)+-\d)(?:[a-z]|-[a-z]{3}(?:-[a-z]+)?-\d+[a-z]|-wlz?\w*-\d+)"
)


def check_availability_zone(zone: str, region: str) -> str:
    """Return ``zone`` when it can be a zone of ``region``; ValueError otherwise.

    Unresolved tokens are never judged. Whether the account can use the zone, and whether it has
    B200 capacity, only AWS knows.
    """
    if Token.is_unresolved(zone):
        return zone
    match = _ZONE.fullmatch(zone)
    if match is None:
        raise ValueError(
            f"availability zone {zone!r} is not one: give a zone's name such as us-west-2b "
            "(zone ids such as usw2-az2 are not accepted)"
        )
    if not Token.is_unresolved(region) and match["region"] != region:
        raise ValueError(
            f"availability zone {zone!r} is not in the stack's region {region}: give a zone whose "
            f"name begins with {region}, or change the region"
        )
    return zone


class ITrainingNetwork(Protocol):
    """Where a job's instances and its file system lie, new or imported."""

    @property
    def vpc(self) -> ec2.IVpc:
        """Network of the job."""
        ...

    @property
    def subnet(self) -> ec2.ISubnet:
        """The one subnet all instances land in."""
        ...

    @property
    def availability_zone(self) -> str:
        """Zone of the subnet."""
        ...

    @property
    def ready(self) -> list[IDependable]:
        """What must exist while a job runs: endpoints, or the way out."""
        ...


@dataclass(frozen=True, kw_only=True)
class _ImportedNetwork:
    vpc: ec2.IVpc
    subnet: ec2.ISubnet

    @property
    def availability_zone(self) -> str:
        return zone_of(self.subnet)

    @property
    def ready(self) -> list[IDependable]:
        return []


class TrainingNetwork(Construct):
    """VPC, one private subnet, S3 gateway and interface endpoints, flow logs.

    All instances of a training job and its file system lie in one subnet of one zone, so there is
    only one. Unless ``nat`` is asked for there is no way to the internet: what the container lacks
    travels with its bundle.

    :param availability_zone: the zone; it must have the capacity the job asks for, and with a
        training plan be the plan's zone. It is fixed: a subnet cannot move, and another one with
        the same addresses cannot be created beside it, so an update to another zone fails.
    :param cidr: the VPC's IPv4 range, /16 to /24. Default: 10.64.0.0/16.
    :param interface_endpoints: which to make, each billed by the hour: ``monitoring``,
        ``codeartifact-api`` and ``codeartifact-repositories``, ``secretsmanager``, ``sts``.
        Default: ``monitoring``, for own scripts that publish metrics; give ``()`` for none.
    :param nat: add a public subnet and a NAT gateway, billed by the hour and by traffic; datasets
        and checkpoints go through the S3 gateway endpoint all the same. Default: no.
    :param removal_policy: what happens to VPC and subnet when the stack goes. They must stay while
        something that stays, such as a file system, has interfaces in them. Default: they go.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        availability_zone: str,
        cidr: str = DEFAULT_CIDR,
        interface_endpoints: Sequence[str] = DEFAULT_INTERFACE_ENDPOINTS,
        nat: bool = False,
        removal_policy: RemovalPolicy = RemovalPolicy.DESTROY,
    ) -> None:
        check_kinds(TrainingNetwork.__init__, locals(), tokens=("availability_zone",))
        super().__init__(scope, construct_id)
        self.availability_zone: str = check_availability_zone(
            availability_zone, Stack.of(self).region
        )
        network = _parse_range(cidr)
        for name in interface_endpoints:
            if name not in INTERFACE_ENDPOINTS:
                raise ValueError(
                    f"interface endpoint {name!r} is not offered: give some of "
                    f"{', '.join(sorted(INTERFACE_ENDPOINTS))}, or () for none"
                )

        # L1 resources: ec2.Vpc asks the account for its zones as soon as account and region are
        # known, which makes `cdk synth` need credentials although the zone is given.
        vpc = ec2.CfnVPC(
            self, "Vpc", cidr_block=cidr, enable_dns_support=True, enable_dns_hostnames=True
        )
        subnet = self._add_subnet(
            "Subnet", vpc, str(next(network.subnets(prefixlen_diff=SUBNET_PREFIX_EXTRA)))
        )
        vpc.apply_removal_policy(removal_policy)
        subnet.apply_removal_policy(removal_policy)
        route_table = ec2.CfnRouteTable(self, "RouteTable", vpc_id=vpc.ref)
        association = ec2.CfnSubnetRouteTableAssociation(
            self, "RouteTableAssociation", route_table_id=route_table.ref, subnet_id=subnet.ref
        )
        for resource in (vpc, subnet, route_table):
            Tags.of(resource).add("Name", self.node.path[-TAG_VALUE_LENGTH:])
        # The route table must outlive the job where endpoints and NAT are reached through it.
        self._ready: list[IDependable] = [association]
        if nat:
            self._ready.append(self._add_nat(vpc, network, route_table))
        self.vpc: ec2.IVpc = ec2.Vpc.from_vpc_attributes(
            self,
            "ImportedVpc",
            vpc_id=vpc.ref,
            vpc_cidr_block=cidr,
            availability_zones=[self.availability_zone],
            isolated_subnet_ids=[subnet.ref],
            isolated_subnet_route_table_ids=[route_table.ref],
        )
        (self.subnet,) = self.vpc.isolated_subnets
        self.subnet.node.add_dependency(association)

        self.endpoints: list[ec2.VpcEndpoint] = self._add_endpoints(cidr, interface_endpoints)
        self._add_flow_logs()

    @property
    def ready(self) -> list[IDependable]:
        """The endpoints and routes: a job without them can neither read nor save."""
        return [*self.endpoints, *self._ready]

    @staticmethod
    def from_subnet(*, vpc: ec2.IVpc, subnet: ec2.ISubnet) -> ITrainingNetwork:
        """Use a network that exists.

        The subnet needs a way to S3 (a gateway endpoint, or NAT) and two free addresses for each
        instance; neither can be checked at synth.

        :param vpc: of the subnet.
        :param subnet: the one for all instances; its zone must be known.
        """
        return _ImportedNetwork(vpc=vpc, subnet=subnet)

    def _add_subnet(self, construct_id: str, vpc: ec2.CfnVPC, cidr: str) -> ec2.CfnSubnet:
        subnet = ec2.CfnSubnet(
            self,
            construct_id,
            vpc_id=vpc.ref,
            cidr_block=cidr,
            availability_zone=self.availability_zone,
            map_public_ip_on_launch=False,
        )
        Validations.of(subnet).acknowledge(
            Acknowledgment(
                id="CloudFormation-Validate::W3010",
                reason="B200 capacity and training plans are bound to one zone, so it is named",
            )
        )
        return subnet

    def _add_nat(
        self, vpc: ec2.CfnVPC, network: ipaddress.IPv4Network, private: ec2.CfnRouteTable
    ) -> IDependable:
        """A public subnet with a NAT gateway, and the private subnet's route to it."""
        gateway = ec2.CfnInternetGateway(self, "InternetGateway")
        attachment = ec2.CfnVPCGatewayAttachment(
            self, "GatewayAttachment", vpc_id=vpc.ref, internet_gateway_id=gateway.ref
        )
        last = ipaddress.IPv4Network((int(network.broadcast_address) - 15, PUBLIC_PREFIX))
        public = self._add_subnet("PublicSubnet", vpc, str(last))
        table = ec2.CfnRouteTable(self, "PublicRouteTable", vpc_id=vpc.ref)
        ec2.CfnSubnetRouteTableAssociation(
            self, "PublicRouteTableAssociation", route_table_id=table.ref, subnet_id=public.ref
        )
        out = ec2.CfnRoute(
            self,
            "PublicRoute",
            route_table_id=table.ref,
            destination_cidr_block=EVERYWHERE,
            gateway_id=gateway.ref,
        )
        address = ec2.CfnEIP(self, "NatAddress", domain="vpc")
        nat = ec2.CfnNatGateway(
            self, "Nat", subnet_id=public.ref, allocation_id=address.attr_allocation_id
        )
        # Addresses and routes need the gateway attached; only routes say so by themselves.
        for resource in (out, address, nat):
            resource.node.add_dependency(attachment)
        nat.node.add_dependency(out)
        return ec2.CfnRoute(
            self,
            "NatRoute",
            route_table_id=private.ref,
            destination_cidr_block=EVERYWHERE,
            nat_gateway_id=nat.ref,
        )

    def _add_endpoints(
        self, cidr: str, interface_endpoints: Sequence[str]
    ) -> list[ec2.VpcEndpoint]:
        subnets = ec2.SubnetSelection(subnets=[self.subnet])
        security_group = ec2.SecurityGroup(
            self,
            "EndpointSecurityGroup",
            vpc=self.vpc,
            description="TLS from the VPC to its interface endpoints",
            allow_all_outbound=False,
        )
        security_group.add_ingress_rule(ec2.Peer.ipv4(cidr), ec2.Port.tcp(443), "TLS from the VPC")
        endpoints: list[ec2.VpcEndpoint] = [
            ec2.GatewayVpcEndpoint(
                self,
                f"{gateway.construct_id}Endpoint",
                vpc=self.vpc,
                service=gateway.service,
                subnets=[subnets],
            )
            for gateway in GATEWAY_ENDPOINTS
        ]
        endpoints += [
            ec2.InterfaceVpcEndpoint(
                self,
                f"{interface.construct_id}Endpoint",
                vpc=self.vpc,
                service=interface.service,
                subnets=subnets,
                security_groups=[security_group],
                private_dns_enabled=True,
                open=False,
            )
            for interface in map(INTERFACE_ENDPOINTS.__getitem__, interface_endpoints)
        ]
        return endpoints

    def _add_flow_logs(self) -> None:
        stack = Stack.of(self)
        log_group = logs.LogGroup(
            self,
            "FlowLogGroup",
            retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(
            self,
            "FlowLogRole",
            # Only for flow logs of this account: the confused deputy, as VPC's documentation says.
            assumed_by=iam.ServicePrincipal(
                "vpc-flow-logs.amazonaws.com",
                conditions={
                    "StringEquals": {"aws:SourceAccount": stack.account},
                    "ArnLike": {
                        "aws:SourceArn": f"arn:{Aws.PARTITION}:ec2:{stack.region}:{stack.account}:"
                        "vpc-flow-log/*"
                    },
                },
            ),
            description="Writes the training VPC's flow logs",
        )
        # Rejected traffic only: it shows what a missing rule blocks. Accepted traffic is the
        # training data itself, in volume.
        ec2.FlowLog(
            self,
            "FlowLog",
            resource_type=ec2.FlowLogResourceType.from_vpc(self.vpc),
            destination=ec2.FlowLogDestination.to_cloud_watch_logs(log_group, role),
            traffic_type=ec2.FlowLogTrafficType.REJECT,
        )


def _parse_range(cidr: str) -> ipaddress.IPv4Network:
    try:
        network = ipaddress.IPv4Network(cidr)
    except ValueError as error:
        raise ValueError(
            f"cidr {cidr!r} is not an IPv4 range ({error}): give one such as {DEFAULT_CIDR}"
        ) from error
    if not 16 <= network.prefixlen <= 24:
        raise ValueError(f"cidr {cidr!r} is a /{network.prefixlen}; a VPC here takes /16 to /24")
    return network

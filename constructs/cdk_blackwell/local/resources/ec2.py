"""Network resource types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.local.resources.resource_type import (
    ApiType,
    Context,
    Made,
    Properties,
    ResourceError,
    ResourceType,
    cannot_update,
    is_gone,
)

_RULE_KEYS = ("CidrIp", "CidrIpv6", "SourceSecurityGroupId", "DestinationSecurityGroupId")
_PREFIX_LISTS = ("SourcePrefixListId", "DestinationPrefixListId")


def _after_vpc(context: Context, made: Made, properties: Properties) -> None:
    for name in ("EnableDnsSupport", "EnableDnsHostnames"):
        if name in properties:
            context.client("ec2").modify_vpc_attribute(
                VpcId=made.physical_id, **{name: {"Value": _is_true(properties[name])}}
            )


def _vpc_attributes(context: Context, made: Made) -> dict[str, Any]:
    groups = context.client("ec2").describe_security_groups(
        Filters=[
            {"Name": "vpc-id", "Values": [made.physical_id]},
            {"Name": "group-name", "Values": ["default"]},
        ]
    )["SecurityGroups"]
    acls = context.client("ec2").describe_network_acls(
        Filters=[
            {"Name": "vpc-id", "Values": [made.physical_id]},
            {"Name": "default", "Values": ["true"]},
        ]
    )["NetworkAcls"]
    return {
        **made.attributes,
        "DefaultSecurityGroup": groups[0]["GroupId"],
        "DefaultNetworkAcl": acls[0]["NetworkAclId"],
    }


class _Vpc(ApiType):
    """A VPC also brings a default security group and network ACL."""

    def create(self, context: Context, properties: Properties) -> Made:
        made = super().create(context, properties)
        return Made(physical_id=made.physical_id, attributes=_vpc_attributes(context, made))


def _after_subnet(context: Context, made: Made, properties: Properties) -> None:
    if "MapPublicIpOnLaunch" in properties:
        context.client("ec2").modify_subnet_attribute(
            SubnetId=made.physical_id,
            MapPublicIpOnLaunch={"Value": _is_true(properties["MapPublicIpOnLaunch"])},
        )


def _is_true(value: Any) -> bool:
    return str(value).lower() == "true"


# --- Security groups -----------------------------------------------------------------------------


def permission(rule: Mapping[str, Any]) -> dict[str, Any]:
    """An EC2 IpPermission from a CloudFormation rule."""
    text = {"Description": rule["Description"]} if rule.get("Description") else {}
    result: dict[str, Any] = {"IpProtocol": str(rule.get("IpProtocol", "-1"))}
    for key in ("FromPort", "ToPort"):
        if key in rule:
            result[key] = int(rule[key])
    if "CidrIp" in rule:
        result["IpRanges"] = [{"CidrIp": rule["CidrIp"], **text}]
    elif "CidrIpv6" in rule:
        result["Ipv6Ranges"] = [{"CidrIpv6": rule["CidrIpv6"], **text}]
    for key in _RULE_KEYS[2:]:
        if key in rule:
            result["UserIdGroupPairs"] = [{"GroupId": rule[key], **text}]
    for key in _PREFIX_LISTS:
        if key in rule:
            result["PrefixListIds"] = [{"PrefixListId": rule[key], **text}]
    if len(result.keys() & {"IpRanges", "Ipv6Ranges", "UserIdGroupPairs", "PrefixListIds"}) != 1:
        raise ResourceError(
            f"a security group rule needs exactly one of {', '.join(_RULE_KEYS + _PREFIX_LISTS)};"
            f" got {', '.join(rule)}"
        )
    return result


def _after_security_group(context: Context, made: Made, properties: Properties) -> None:
    ec2 = context.client("ec2")
    group = {"GroupId": made.physical_id}
    ingress = [permission(rule) for rule in properties.get("SecurityGroupIngress", [])]
    egress = [permission(rule) for rule in properties.get("SecurityGroupEgress", [])]
    if ingress:
        ec2.authorize_security_group_ingress(**group, IpPermissions=ingress)
    if egress:
        # The rule that EC2 gives every new group holds only as long as no rule is given.
        everywhere = {"IpProtocol": "-1", "IpRanges": [{"CidrIp": "0.0.0.0/0"}]}
        ec2.revoke_security_group_egress(**group, IpPermissions=[everywhere])
        ec2.authorize_security_group_egress(**group, IpPermissions=egress)


class _Rule:
    """SecurityGroupIngress or SecurityGroupEgress."""

    def __init__(self, direction: str) -> None:
        self._direction = direction

    def create(self, context: Context, properties: Properties) -> Made:
        ec2 = context.client("ec2")
        answer = getattr(ec2, f"authorize_security_group_{self._direction}")(
            GroupId=properties["GroupId"], IpPermissions=[permission(properties)]
        )
        rule = answer["SecurityGroupRules"][0]["SecurityGroupRuleId"]
        return Made(physical_id=rule, attributes={"Id": rule})

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        raise cannot_update(context.type)

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        try:
            getattr(context.client("ec2"), f"revoke_security_group_{self._direction}")(
                GroupId=properties["GroupId"], IpPermissions=[permission(properties)]
            )
        except ClientError as error:
            if not is_gone(error):
                raise


# --- Interfaces that go with their owner ---------------------------------------------------------


def _release_endpoint(context: Context, made: Made, properties: Properties) -> None:
    """EC2 takes an interface endpoint's interfaces away with it; moto leaves them."""
    answer = context.client("ec2").describe_vpc_endpoints(VpcEndpointIds=[made.physical_id])
    for endpoint in answer["VpcEndpoints"]:
        _delete_interfaces(context, endpoint.get("NetworkInterfaceIds", []))


def _release_nat(context: Context, made: Made, properties: Properties) -> None:
    """The same for a NAT gateway."""
    answer = context.client("ec2").describe_nat_gateways(NatGatewayIds=[made.physical_id])
    for gateway in answer["NatGateways"]:
        addresses = gateway.get("NatGatewayAddresses", [])
        _delete_interfaces(context, [address["NetworkInterfaceId"] for address in addresses])


def _delete_interfaces(context: Context, interfaces: list[str]) -> None:
    for interface in interfaces:
        try:
            context.client("ec2").delete_network_interface(NetworkInterfaceId=interface)
        except ClientError as error:
            if not is_gone(error):
                raise


# --- Flow logs -----------------------------------------------------------------------------------


class _FlowLog(ApiType):
    """The API takes lists of resources, CloudFormation one."""

    def create(self, context: Context, properties: Properties) -> Made:
        values = {**properties, "ResourceIds": [properties["ResourceId"]]}
        group = properties.get("LogDestination") or ""
        match = re.search(r":log-group:([^:*]+)", group)
        if match and properties.get("LogDestinationType") == "cloud-watch-logs":
            values["LogGroupName"] = match[1]
            del values["LogDestination"]
        made = super().create(context, values)
        if not made.physical_id.startswith("fl-"):
            raise ResourceError(f"the flow log was refused: {made.physical_id}")
        return made


TYPES: Final[Mapping[str, ResourceType]] = {
    "AWS::EC2::VPC": _Vpc(
        service="ec2",
        create_call="create_vpc",
        physical_id="output.Vpc.VpcId",
        attributes={"VpcId": "output.Vpc.VpcId", "CidrBlock": "output.Vpc.CidrBlock"},
        apart=("EnableDnsSupport", "EnableDnsHostnames"),
        ec2_tags="vpc",
        after=_after_vpc,
        delete_call="delete_vpc",
        delete_input={"VpcId": "{id}"},
    ),
    "AWS::EC2::Subnet": ApiType(
        service="ec2",
        create_call="create_subnet",
        physical_id="output.Subnet.SubnetId",
        attributes={
            "SubnetId": "output.Subnet.SubnetId",
            "AvailabilityZone": "output.Subnet.AvailabilityZone",
            "VpcId": "output.Subnet.VpcId",
            "CidrBlock": "output.Subnet.CidrBlock",
        },
        apart=("MapPublicIpOnLaunch",),
        ec2_tags="subnet",
        after=_after_subnet,
        delete_call="delete_subnet",
        delete_input={"SubnetId": "{id}"},
    ),
    "AWS::EC2::InternetGateway": ApiType(
        service="ec2",
        create_call="create_internet_gateway",
        physical_id="output.InternetGateway.InternetGatewayId",
        attributes={"InternetGatewayId": "output.InternetGateway.InternetGatewayId"},
        ec2_tags="internet-gateway",
        delete_call="delete_internet_gateway",
        delete_input={"InternetGatewayId": "{id}"},
    ),
    "AWS::EC2::VPCGatewayAttachment": ApiType(
        service="ec2",
        create_call="attach_internet_gateway",
        physical_id="join('|', ['IGW', input.VpcId])",
        delete_call="detach_internet_gateway",
        delete_input={"InternetGatewayId": "{InternetGatewayId}", "VpcId": "{VpcId}"},
    ),
    "AWS::EC2::EIP": ApiType(
        service="ec2",
        create_call="allocate_address",
        physical_id="output.PublicIp",
        attributes={"AllocationId": "output.AllocationId", "PublicIp": "output.PublicIp"},
        ec2_tags="elastic-ip",
        delete_call="release_address",
        delete_input={"AllocationId": "{AllocationId}"},
    ),
    "AWS::EC2::NatGateway": ApiType(
        service="ec2",
        create_call="create_nat_gateway",
        physical_id="output.NatGateway.NatGatewayId",
        attributes={"NatGatewayId": "output.NatGateway.NatGatewayId"},
        ec2_tags="natgateway",
        before_delete=_release_nat,
        delete_call="delete_nat_gateway",
        delete_input={"NatGatewayId": "{id}"},
    ),
    "AWS::EC2::RouteTable": ApiType(
        service="ec2",
        create_call="create_route_table",
        physical_id="output.RouteTable.RouteTableId",
        attributes={"RouteTableId": "output.RouteTable.RouteTableId"},
        ec2_tags="route-table",
        delete_call="delete_route_table",
        delete_input={"RouteTableId": "{id}"},
    ),
    "AWS::EC2::SubnetRouteTableAssociation": ApiType(
        service="ec2",
        create_call="associate_route_table",
        physical_id="output.AssociationId",
        attributes={"Id": "output.AssociationId"},
        delete_call="disassociate_route_table",
        delete_input={"AssociationId": "{id}"},
    ),
    "AWS::EC2::Route": ApiType(
        service="ec2",
        create_call="create_route",
        physical_id="join('|', [input.RouteTableId, input.DestinationCidrBlock])",
        attributes={"CidrBlock": "input.DestinationCidrBlock"},
        delete_call="delete_route",
        delete_input={
            "RouteTableId": "{RouteTableId}",
            "DestinationCidrBlock": "{DestinationCidrBlock}",
        },
    ),
    "AWS::EC2::VPCEndpoint": ApiType(
        service="ec2",
        create_call="create_vpc_endpoint",
        physical_id="output.VpcEndpoint.VpcEndpointId",
        attributes={
            "Id": "output.VpcEndpoint.VpcEndpointId",
            "CreationTimestamp": "output.VpcEndpoint.CreationTimestamp",
            "NetworkInterfaceIds": "output.VpcEndpoint.NetworkInterfaceIds",
            "DnsEntries": "output.VpcEndpoint.DnsEntries[].join(':', [HostedZoneId, DnsName])",
        },
        ec2_tags="vpc-endpoint",
        before_delete=_release_endpoint,
        delete_call="delete_vpc_endpoints",
        delete_input={"VpcEndpointIds": ["{id}"]},
    ),
    "AWS::EC2::SecurityGroup": ApiType(
        service="ec2",
        create_call="create_security_group",
        physical_id="output.GroupId",
        attributes={"GroupId": "output.GroupId", "Id": "output.GroupId", "VpcId": "input.VpcId"},
        name="GroupName",
        rename={"GroupDescription": "Description"},
        apart=("SecurityGroupIngress", "SecurityGroupEgress"),
        ec2_tags="security-group",
        after=_after_security_group,
        delete_call="delete_security_group",
        delete_input={"GroupId": "{id}"},
    ),
    "AWS::EC2::SecurityGroupIngress": _Rule("ingress"),
    "AWS::EC2::SecurityGroupEgress": _Rule("egress"),
    "AWS::EC2::FlowLog": _FlowLog(
        service="ec2",
        create_call="create_flow_logs",
        physical_id="output.FlowLogIds[0] || output.Unsuccessful[0].Error.Message",
        attributes={"Id": "output.FlowLogIds[0]"},
        apart=("ResourceId",),
        ec2_tags="vpc-flow-log",
        delete_call="delete_flow_logs",
        delete_input={"FlowLogIds": ["{id}"]},
    ),
}

"""What security groups admit, over inline rules and rules of their own, in any template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from cdk_blackwell.compliance.templates import Resource, Templates

Direction = Literal["ingress", "egress"]
_TYPES: dict[Direction, str] = {
    "ingress": "AWS::EC2::SecurityGroupIngress",
    "egress": "AWS::EC2::SecurityGroupEgress",
}
_INLINE: dict[Direction, str] = {
    "ingress": "SecurityGroupIngress",
    "egress": "SecurityGroupEgress",
}
_PEER: dict[Direction, str] = {
    "ingress": "SourceSecurityGroupId",
    "egress": "DestinationSecurityGroupId",
}
ANYWHERE = ("0.0.0.0/0", "::/0")


def groups_of(templates: Templates, resource: Resource, name: str) -> list[Resource]:
    """The security groups of a resource's property ``name``, as far as the app makes them."""
    values = resource.find(name)
    found = [
        templates.target(value, resource.template)
        for value in (values if isinstance(values, list) else [])
    ]
    return [group for group in found if group is not None]


def rule_resources(templates: Templates, group: Resource) -> Iterator[Resource]:
    """Rules of ``group`` that are resources of their own."""
    for rule in templates.resources(*_TYPES.values()):
        if templates.target(rule.find("GroupId"), rule.template) is group:
            yield rule


def allows(
    templates: Templates,
    group: Resource,
    peer: Resource,
    *,
    direction: str,
    port: int | None,
) -> bool:
    """Whether a rule of ``group`` names ``peer`` and lets this TCP port through; None is all.

    Only rules by reference count for all traffic, because EFA is not IP; a TCP port may also be
    opened to any address.
    """
    side: Direction = "ingress" if direction == "ingress" else "egress"
    for rule, template in _rules(templates, group, side):
        named = templates.target(rule.get(_PEER[side]), template) is peer
        everybody = port is not None and rule.get("CidrIp") in ANYWHERE
        if (named or everybody) and _covers(rule, port):
            return True
    return False


def open_to_all(templates: Templates, group: Resource) -> Iterator[str]:
    """Address ranges that are everybody, from which ``group`` admits traffic."""
    for rule, _ in _rules(templates, group, "ingress"):
        for name in ("CidrIp", "CidrIpv6"):
            if rule.get(name) in ANYWHERE:
                yield str(rule[name])


def _rules(
    templates: Templates, group: Resource, direction: Direction
) -> Iterator[tuple[Mapping[str, Any], Any]]:
    for rule in group.find(_INLINE[direction]) or []:
        if isinstance(rule, Mapping):
            yield rule, group.template
    for resource in rule_resources(templates, group):
        if resource.type == _TYPES[direction]:
            yield resource.properties, resource.template


def _covers(rule: Mapping[str, Any], port: int | None) -> bool:
    protocol = str(rule.get("IpProtocol"))
    if protocol == "-1":
        return True
    if port is None or protocol not in ("tcp", "6"):
        return False
    first, last = rule.get("FromPort"), rule.get("ToPort")
    return isinstance(first, int) and isinstance(last, int) and first <= port <= last

"""What security groups admit, over inline rules and rules of their own, in any template."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from cdk_blackwell.compliance.templates import Resource, Templates, as_list, is_intrinsic

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
_ADDRESSES: dict[Direction, tuple[str, ...]] = {
    "ingress": ("CidrIp", "CidrIpv6", "SourcePrefixListId"),
    "egress": ("CidrIp", "CidrIpv6", "DestinationPrefixListId"),
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

    Only rules by reference count for all traffic, because EFA is not IP. A TCP port may also be
    opened to addresses, which may be the peer's: whether they are, no template says. A group
    without any egress rule lets everything out, by address.
    """
    side: Direction = "ingress" if direction == "ingress" else "egress"
    rules = list(_rules(templates, group, side))
    if side == "egress" and port is not None and not rules:
        return True
    for rule, template in rules:
        who = rule.get(_PEER[side])
        target = templates.target(who, template)
        # What is no resource of the app, but filled in at deploy, may be the peer.
        named = target is peer or (target is None and is_intrinsic(who))
        by_address = port is not None and any(name in rule for name in _ADDRESSES[side])
        if (named or by_address) and _covers(rule, port):
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
    for rule in as_list(group.find(_INLINE[direction])):
        if isinstance(rule, Mapping):
            yield rule, group.template
    for resource in rule_resources(templates, group):
        if resource.type == _TYPES[direction]:
            yield resource.properties, resource.template


def _covers(rule: Mapping[str, Any], port: int | None) -> bool:
    """Whether the rule may let the port through; what is filled in at deploy may."""
    protocol = rule.get("IpProtocol")
    if is_intrinsic(protocol) or str(protocol) == "-1":
        return True
    if port is None or str(protocol).lower() not in ("tcp", "6"):
        return False
    first, last = (_port(rule.get(name), port) for name in ("FromPort", "ToPort"))
    return first is not None and last is not None and first <= port <= last


def _port(value: Any, wanted: int) -> int | None:
    """A number, which templates also write as text; ``wanted`` where it is not known at synth."""
    if is_intrinsic(value):
        return wanted
    text = str(value)
    return int(text) if text.isdecimal() else None

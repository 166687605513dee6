"""The rules between a job's instances and between them and the file servers, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from aws_cdk import CfnResource
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cdk_blackwell.infrastructure.lustre import LUSTRE_PORTS

Side = Literal["job", "file_system"]
Direction = Literal["ingress", "egress"]
DIRECTIONS: Final[tuple[Direction, ...]] = ("ingress", "egress")
ALL_TRAFFIC: Final = "-1"


@dataclass(frozen=True, kw_only=True)
class PeerRule:
    """One rule between two security groups, in one direction."""

    construct_id: str
    direction: Direction
    of: Side
    peer: Side
    protocol: str
    first_port: int | None
    last_port: int | None
    why: str

    def add(self, scope: Construct, ids: dict[Side, str]) -> CfnResource:
        """Make the rule below ``scope``; ``ids`` are the two groups' ids."""
        if self.direction == "ingress":
            return ec2.CfnSecurityGroupIngress(
                scope,
                self.construct_id,
                group_id=ids[self.of],
                source_security_group_id=ids[self.peer],
                ip_protocol=self.protocol,
                from_port=self.first_port,
                to_port=self.last_port,
                description=self.why,
            )
        return ec2.CfnSecurityGroupEgress(
            scope,
            self.construct_id,
            group_id=ids[self.of],
            destination_security_group_id=ids[self.peer],
            ip_protocol=self.protocol,
            from_port=self.first_port,
            to_port=self.last_port,
            description=self.why,
        )


# EFA traffic is not IP and matches only rules that name the group itself, and EFA needs them both
# ways. allow_all_outbound=True would silently drop the egress one.
EFA_RULES: Final = tuple(
    PeerRule(
        construct_id=f"Efa{direction.capitalize()}",
        direction=direction,
        of="job",
        peer="job",
        protocol=ALL_TRAFFIC,
        first_port=None,
        last_port=None,
        why="EFA and NCCL among this job's instances",
    )
    for direction in DIRECTIONS
)

_SIDES: Final[tuple[tuple[str, Side, Side], ...]] = (
    ("Lustre", "job", "file_system"),
    ("FileSystem", "file_system", "job"),
)

LUSTRE_RULES: Final = tuple(
    PeerRule(
        construct_id=f"{name}{direction.capitalize()}{ports.first}",
        direction=direction,
        of=of,
        peer=peer,
        protocol="tcp",
        first_port=ports.first,
        last_port=ports.last,
        why=f"{ports.why}, {of.replace('_', ' ')} {direction}",
    )
    for ports in LUSTRE_PORTS
    for name, of, peer in _SIDES
    for direction in DIRECTIONS
)

LUSTRE_EFA_RULES: Final = tuple(
    PeerRule(
        construct_id=f"{name}{direction.capitalize()}Efa",
        direction=direction,
        of=of,
        peer=peer,
        protocol=ALL_TRAFFIC,
        first_port=None,
        last_port=None,
        why=f"Lustre over EFA, {of.replace('_', ' ')} {direction}",
    )
    for name, of, peer in _SIDES
    for direction in DIRECTIONS
)


def file_system_rules(*, efa: bool) -> tuple[PeerRule, ...]:
    """What Lustre needs between job and file servers."""
    return LUSTRE_EFA_RULES if efa else LUSTRE_RULES

"""The security group of one job: EFA among its instances, TLS to endpoints, Lustre to the files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from aws_cdk import CfnResource
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cdk_blackwell.infrastructure.file_system import LUSTRE_PORTS, ISharedFileSystem

Side = Literal["job", "file_system"]
Direction = Literal["ingress", "egress"]
_DIRECTIONS: Final[tuple[Direction, ...]] = ("ingress", "egress")
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
    for direction in _DIRECTIONS
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
    for direction in _DIRECTIONS
)


class JobSecurityGroup(Construct):
    """One group per job, so that a delete can wait for exactly this job's interfaces.

    The rules are resources of the job's own stack, also those of the file system's group: a job
    that comes and goes never changes the stack of the file system.
    """

    def __init__(
        self, scope: Construct, construct_id: str, *, vpc: ec2.IVpc, file_system: ISharedFileSystem
    ) -> None:
        super().__init__(scope, construct_id)
        self.security_group: ec2.SecurityGroup = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=vpc,
            description="Instances of one training job",
            allow_all_outbound=False,
        )
        self.security_group.add_egress_rule(
            ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "TLS to S3 and the interface endpoints"
        )
        self._ids = {
            "job": self.security_group.security_group_id,
            "file_system": file_system.security_group.security_group_id,
        }
        self.rules: list[CfnResource] = [self._rule(rule) for rule in (*EFA_RULES, *LUSTRE_RULES)]

    def _rule(self, rule: PeerRule) -> CfnResource:
        if rule.direction == "ingress":
            return ec2.CfnSecurityGroupIngress(
                self,
                rule.construct_id,
                group_id=self._ids[rule.of],
                source_security_group_id=self._ids[rule.peer],
                ip_protocol=rule.protocol,
                from_port=rule.first_port,
                to_port=rule.last_port,
                description=rule.why,
            )
        return ec2.CfnSecurityGroupEgress(
            self,
            rule.construct_id,
            group_id=self._ids[rule.of],
            destination_security_group_id=self._ids[rule.peer],
            ip_protocol=rule.protocol,
            from_port=rule.first_port,
            to_port=rule.last_port,
            description=rule.why,
        )

"""The security group of one job: EFA among its instances, TLS to endpoints, Lustre to the files."""

from __future__ import annotations

from aws_cdk import Annotations, CfnResource, Stack
from aws_cdk import aws_ec2 as ec2
from constructs import Construct

from cdk_blackwell.infrastructure.file_system import ISharedFileSystem
from cdk_blackwell.infrastructure.peer_rules import (
    ALL_TRAFFIC,
    EFA_RULES,
    PeerRule,
    Side,
    file_system_rules,
)


class SelfRules(Construct):
    """Holds the rules for EFA of a group that exists, for all jobs that use it."""


class JobSecurityGroup(Construct):
    """One group per job, so that a delete can wait for exactly this job's interfaces.

    The rules are resources of the job's own stack, also those of the file system's group: a job
    that comes and goes never changes the stack of the file system.

    :param vpc: the job's network.
    :param file_system: what the job mounts.
    :param existing: use this group, which may be shared. A delete then waits only for interfaces
        that name one of this job's attempts. Missing rules are added: those for EFA once and in the
        group's stack, those for Lustre as parts of the first job that names both groups.
        Default: a new group.
    :param rules_exist: change nothing on ``existing``: somebody else keeps the rules. For a group
        that this app made, it is checked that those for EFA are there. Default: no.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        vpc: ec2.IVpc,
        file_system: ISharedFileSystem,
        existing: ec2.ISecurityGroup | None = None,
        rules_exist: bool = False,
    ) -> None:
        super().__init__(scope, construct_id)
        if existing is not None:
            _check_vpc(existing, vpc)
        self.security_group: ec2.ISecurityGroup = existing or self._own_group(vpc)
        self.rules: list[CfnResource] = []
        if rules_exist and existing is None:
            raise ValueError(
                "security_group_rules_exist is given without security_group: a new group has no "
                "rules; leave it out, or name the group"
            )
        lustre = file_system_rules(efa=file_system.efa)
        if existing is None:
            ids = self._ids(file_system)
            self.rules = [rule.add(self, ids) for rule in (*EFA_RULES, *lustre)]
        elif rules_exist:
            self._check_efa_rules(existing)
        else:
            _let_tls_out(existing)
            self.rules = [
                *self._complete_efa(existing),
                *self._complete_lustre(existing, file_system, lustre),
            ]

    def _own_group(self, vpc: ec2.IVpc) -> ec2.SecurityGroup:
        group = ec2.SecurityGroup(
            self,
            "SecurityGroup",
            vpc=vpc,
            description="Instances of one training job",
            allow_all_outbound=False,
        )
        _let_tls_out(group)
        return group

    def _ids(self, file_system: ISharedFileSystem) -> dict[Side, str]:
        return {
            "job": self.security_group.security_group_id,
            "file_system": file_system.security_group.security_group_id,
        }

    def _complete_efa(self, group: ec2.ISecurityGroup) -> list[CfnResource]:
        """The self rules that the group lacks, made once and beside it: every job of it needs them.

        Its own ``add_egress_rule`` would drop the egress one where all outbound traffic is allowed.
        """
        _refuse_second_import(self, group)
        found = _self_rules(group)
        ids: dict[Side, str] = {"job": group.security_group_id}
        stack, name = Stack.of(group), _efa_rules_id(group)
        holder = stack.node.try_find_child(name) or SelfRules(stack, name)
        assert isinstance(holder, SelfRules)
        return [found.get(rule.direction) or rule.add(holder, ids) for rule in EFA_RULES]

    def _complete_lustre(
        self,
        group: ec2.ISecurityGroup,
        file_system: ISharedFileSystem,
        rules: tuple[PeerRule, ...],
    ) -> list[CfnResource]:
        ids = self._ids(file_system)
        holder = _first_holder(self, group, file_system)
        if holder is self:
            return [rule.add(self, ids) for rule in rules]
        if Stack.of(holder) is not Stack.of(self):
            raise ValueError(
                f"security group {group.node.path} already reaches this file system by rules of "
                f"{holder.node.path}, in another stack, and EC2 refuses a rule twice: give each "
                "job its own group (leave security_group out), or keep the rules yourself and set "
                "security_group_rules_exist"
            )
        return [rule for rule in holder.rules if rule.node.scope is holder]

    def _check_efa_rules(self, group: ec2.ISecurityGroup) -> None:
        missing = sorted({"ingress", "egress"} - set(_self_rules(group)))
        if isinstance(group, ec2.SecurityGroup) and missing:
            raise ValueError(
                f"security group {group.node.path} has no {' and no '.join(missing)} rule for all "
                "traffic that names the group itself, which EFA needs both ways: add it (as "
                "CfnSecurityGroupIngress and CfnSecurityGroupEgress; add_egress_rule drops it "
                "under allow_all_outbound), or leave security_group_rules_exist out and it is added"
            )
        Annotations.of(self).add_info(
            f"security group {group.node.path} is left as it is: it must let all traffic pass to "
            "and from itself (EFA), TCP 443 out, and Lustre's ports (988, 1018-1023) both ways"
        )


def _let_tls_out(group: ec2.ISecurityGroup) -> None:
    """What every job needs for S3; a group that lets everything out has it (imports count so)."""
    if not group.allow_all_outbound:
        group.add_egress_rule(
            ec2.Peer.any_ipv4(), ec2.Port.tcp(443), "TLS to S3 and the interface endpoints"
        )


def _check_vpc(group: ec2.ISecurityGroup, vpc: ec2.IVpc) -> None:
    """Of a group that this app makes it is known which VPC it is of."""
    resource = group.node.default_child
    if not isinstance(resource, ec2.CfnSecurityGroup):
        return
    stack = Stack.of(group)
    if stack.resolve(resource.vpc_id) != stack.resolve(vpc.vpc_id) and Stack.of(vpc) is stack:
        raise ValueError(
            f"security group {group.node.path} is not of vpc {vpc.node.path}, and interfaces take "
            "groups of their own VPC only: give one of that VPC, or leave security_group out"
        )


def _efa_rules_id(group: ec2.ISecurityGroup) -> str:
    return f"EfaRules{group.node.addr[-8:]}"


def _self_rules(group: ec2.ISecurityGroup) -> dict[str, CfnResource]:
    """Rules of the group, made in this app, for all traffic of its own, by direction."""
    stack = Stack.of(group)
    own = stack.resolve(group.security_group_id)
    holder = stack.node.try_find_child(_efa_rules_id(group))
    found: dict[str, CfnResource] = {}
    for child in [*group.node.children, *(holder.node.children if holder else [])]:
        if isinstance(child, ec2.CfnSecurityGroupIngress):
            direction, peer = "ingress", child.source_security_group_id
        elif isinstance(child, ec2.CfnSecurityGroupEgress):
            direction, peer = "egress", child.destination_security_group_id
        else:
            continue
        if child.ip_protocol == ALL_TRAFFIC and stack.resolve(peer) == own:
            found[direction] = child
    return found


def _groups(job: JobSecurityGroup) -> list[JobSecurityGroup]:
    """Groups of all jobs in the app, this one included, in the order they were made.

    One that was refused lies in the tree too, without a group.
    """
    return [
        other
        for other in job.node.root.node.find_all()
        if isinstance(other, JobSecurityGroup) and hasattr(other, "rules")
    ]


def _refuse_second_import(job: JobSecurityGroup, group: ec2.ISecurityGroup) -> None:
    """One group imported by two constructs would get the same rules twice, which EC2 refuses."""
    stack = Stack.of(group)
    group_id = stack.resolve(group.security_group_id)
    for other in _groups(job):
        theirs = other.security_group
        if other is job or theirs is group:
            continue
        # What is filled in at deploy is one thing in one stack only.
        comparable = isinstance(group_id, str) or Stack.of(theirs) is stack
        if other.rules and comparable and stack.resolve(theirs.security_group_id) == group_id:
            raise ValueError(
                f"security group {group_id} is imported twice, as {theirs.node.path} and "
                f"{group.node.path}, and EC2 refuses a rule twice: import it once and give the "
                "same construct to both jobs, or set security_group_rules_exist on one of them"
            )


def _first_holder(
    job: JobSecurityGroup, group: ec2.ISecurityGroup, file_system: ISharedFileSystem
) -> JobSecurityGroup:
    """The first job's construct that holds the Lustre rules of this pair of groups."""
    for other in _groups(job):
        if other is job:
            break
        if other.security_group is group and any(
            getattr(rule, "group_id", None) == file_system.security_group.security_group_id
            for rule in other.rules
        ):
            return other
    return job

"""The instances' security group: a new one per job, or an existing one, completed or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Fn, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Annotations, Match, Template

from cdk_blackwell import SharedFileSystem
from cdk_blackwell.infrastructure.file_system import ISharedFileSystem
from cdk_blackwell.infrastructure.job_security_group import JobSecurityGroup

INGRESS = "AWS::EC2::SecurityGroupIngress"
EGRESS = "AWS::EC2::SecurityGroupEgress"
PEERS = {INGRESS: "SourceSecurityGroupId", EGRESS: "DestinationSecurityGroupId"}


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    app = App(outdir=str(tmp_path))
    return Stack(app, "Stack", env=Environment(region="us-west-2"))


@pytest.fixture
def vpc(stack: Stack) -> ec2.IVpc:
    return ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-west-2b"]
    )


@pytest.fixture
def files(stack: Stack) -> ISharedFileSystem:
    return imported_files(stack)


def imported_files(stack: Stack, *, efa: bool = False) -> ISharedFileSystem:
    return SharedFileSystem.from_attributes(
        file_system_id="fs-1",
        mount_name="abcdefgh",
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "FileGroup", "sg-files"),
        availability_zone="us-west-2b",
        dataset_bucket=s3.Bucket.from_bucket_name(stack, "Data", "data"),
        efa=efa,
    )


def rules(stack: Stack, kind: str) -> list[dict[str, Any]]:
    return [rule["Properties"] for rule in Template.from_stack(stack).find_resources(kind).values()]


def self_rules(stack: Stack, kind: str) -> list[dict[str, Any]]:
    return [
        rule
        for rule in rules(stack, kind)
        if rule["IpProtocol"] == "-1" and rule["GroupId"] == rule[PEERS[kind]]
    ]


@pytest.mark.parametrize("kind", [INGRESS, EGRESS])
def test_a_group_with_all_outbound_still_gets_its_self_rules(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem, kind: str
) -> None:
    """gardener-extension-provider-aws#1832: 0.0.0.0/0 does not match EFA, and the CDK drops a
    self-referencing egress rule of such a group with a warning."""
    group = ec2.SecurityGroup(stack, "Group", vpc=vpc, allow_all_outbound=True)
    JobSecurityGroup(stack, "Job", vpc=vpc, file_system=files, existing=group)
    assert len(self_rules(stack, kind)) == 1


@pytest.mark.parametrize("all_outbound", [True, False])
def test_an_existing_group_lets_tls_out_once(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem, all_outbound: bool
) -> None:
    group = ec2.SecurityGroup(stack, "Group", vpc=vpc, allow_all_outbound=all_outbound)
    for name in ("First", "Second"):
        JobSecurityGroup(stack, name, vpc=vpc, file_system=files, existing=group)
    (found,) = Template.from_stack(stack).find_resources("AWS::EC2::SecurityGroup").values()
    (egress,) = found["Properties"]["SecurityGroupEgress"]
    assert egress.get("ToPort") == (None if all_outbound else 443)


@pytest.mark.parametrize("kind", [INGRESS, EGRESS])
def test_rules_that_are_there_are_not_made_twice(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem, kind: str
) -> None:
    """EC2 refuses a rule that exists."""
    group = ec2.SecurityGroup(stack, "Group", vpc=vpc, allow_all_outbound=False)
    group.add_ingress_rule(group, ec2.Port.all_traffic())
    group.add_egress_rule(group, ec2.Port.all_traffic())
    job = JobSecurityGroup(stack, "Job", vpc=vpc, file_system=files, existing=group)
    assert len(self_rules(stack, kind)) == 1
    # The job still waits for them, whoever made them.
    assert len(job.rules) == 2 + 8


@pytest.mark.parametrize("kind", [INGRESS, EGRESS])
def test_two_jobs_of_one_stack_may_share_a_group(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem, kind: str
) -> None:
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-shared")
    jobs = [
        JobSecurityGroup(stack, name, vpc=vpc, file_system=files, existing=group)
        for name in ("First", "Second")
    ]
    assert len(self_rules(stack, kind)) == 1
    lustre = [rule for rule in rules(stack, kind) if rule["IpProtocol"] == "tcp"]
    assert len(lustre) == 4
    assert len(jobs[0].rules) == len(jobs[1].rules)


def test_fails_when_two_stacks_would_make_the_same_rules(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem
) -> None:
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-shared")
    JobSecurityGroup(stack, "Job", vpc=vpc, file_system=files, existing=group)
    app = stack.node.root
    assert isinstance(app, App)
    other = Stack(app, "Other", env=Environment(region="us-west-2"))
    with pytest.raises(ValueError, match=r"already reaches this file system by rules of Stack/Job"):
        JobSecurityGroup(other, "Job", vpc=vpc, file_system=files, existing=group)


def test_fails_when_one_group_is_imported_twice(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem
) -> None:
    first = ec2.SecurityGroup.from_security_group_id(stack, "Group1", "sg-shared")
    second = ec2.SecurityGroup.from_security_group_id(stack, "Group2", "sg-shared")
    JobSecurityGroup(stack, "First", vpc=vpc, file_system=files, existing=first)
    with pytest.raises(ValueError, match="sg-shared is imported twice"):
        JobSecurityGroup(stack, "Second", vpc=vpc, file_system=files, existing=second)


def test_fails_when_one_group_is_imported_twice_by_a_value_of_deploy(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem
) -> None:
    first, second = (
        ec2.SecurityGroup.from_security_group_id(stack, f"Group{n}", Fn.import_value("group"))
        for n in (1, 2)
    )
    JobSecurityGroup(stack, "First", vpc=vpc, file_system=files, existing=first)
    with pytest.raises(ValueError, match=r"'Fn::ImportValue': 'group'\} is imported twice"):
        JobSecurityGroup(stack, "Second", vpc=vpc, file_system=files, existing=second)
    app = stack.node.root
    assert isinstance(app, App)
    other = Stack(app, "Other", env=Environment(region="us-east-1"))
    elsewhere = ec2.SecurityGroup.from_security_group_id(other, "Group", Fn.import_value("group"))
    JobSecurityGroup(other, "Third", vpc=vpc, file_system=files, existing=elsewhere)


def test_fails_for_a_group_of_another_vpc(stack: Stack, files: ISharedFileSystem) -> None:
    ours, theirs = (
        ec2.Vpc(stack, name, availability_zones=["us-west-2b"], nat_gateways=0)
        for name in ("Ours", "Theirs")
    )
    group = ec2.SecurityGroup(stack, "Group", vpc=theirs)
    with pytest.raises(ValueError, match="Stack/Group is not of vpc Stack/Ours"):
        JobSecurityGroup(stack, "Job", vpc=ours, file_system=files, existing=group)
    JobSecurityGroup(stack, "Other", vpc=theirs, file_system=files, existing=group)


def test_nothing_is_changed_where_somebody_else_keeps_the_rules(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem
) -> None:
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1", mutable=False)
    JobSecurityGroup(stack, "Job", vpc=vpc, file_system=files, existing=group, rules_exist=True)
    assert rules(stack, INGRESS) == rules(stack, EGRESS) == []
    words = Match.string_like_regexp("must let all traffic pass to and from itself.*988")
    assert len(Annotations.from_stack(stack).find_info("*", words)) == 1


def test_fails_when_they_are_said_to_be_there_and_are_not(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem
) -> None:
    group = ec2.SecurityGroup(stack, "Group", vpc=vpc, allow_all_outbound=False)
    group.add_ingress_rule(group, ec2.Port.all_traffic())
    with pytest.raises(ValueError, match=r"has no egress rule for all traffic.*EFA needs both"):
        JobSecurityGroup(stack, "Job", vpc=vpc, file_system=files, existing=group, rules_exist=True)


def test_fails_when_a_new_group_is_said_to_have_rules(
    stack: Stack, vpc: ec2.IVpc, files: ISharedFileSystem
) -> None:
    with pytest.raises(ValueError, match="given without security_group"):
        JobSecurityGroup(stack, "Job", vpc=vpc, file_system=files, rules_exist=True)


def test_a_file_system_with_efa_is_reached_by_all_traffic(stack: Stack, vpc: ec2.IVpc) -> None:
    JobSecurityGroup(stack, "Job", vpc=vpc, file_system=imported_files(stack, efa=True))
    for kind in (INGRESS, EGRESS):
        between = [rule for rule in rules(stack, kind) if rule["GroupId"] != rule[PEERS[kind]]]
        assert len(between) == 2
        assert all(rule["IpProtocol"] == "-1" for rule in between)

"""The shared file system alone: what it links, who may reach it, what stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, RemovalPolicy, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Annotations, Match, Template

from cdk_blackwell import SharedFileSystem
from cdk_blackwell.infrastructure.file_system import export_checkpoints

KEY_ARN = "arn:aws:kms:us-west-2:123456789012:key/11111111-2222-3333-4444-555555555555"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    app = App(outdir=str(tmp_path))
    return Stack(app, "Stack", env=Environment(region="us-west-2", account="123456789012"))


def file_system(stack: Stack, bucket: s3.IBucket, **props: Any) -> SharedFileSystem:
    vpc = ec2.Vpc.from_vpc_attributes(
        stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-west-2b"]
    )
    subnet = ec2.Subnet.from_subnet_attributes(
        stack, "Subnet", subnet_id="subnet-1", availability_zone="us-west-2b"
    )
    return SharedFileSystem(stack, "Files", vpc=vpc, subnet=subnet, dataset_bucket=bucket, **props)


def lustre(stack: Stack) -> dict[str, Any]:
    (found,) = Template.from_stack(stack).find_resources("AWS::FSx::FileSystem").values()
    properties: dict[str, Any] = found["Properties"]
    return properties


def key_statements(stack: Stack) -> list[dict[str, Any]]:
    return [
        statement
        for key in Template.from_stack(stack).find_resources("AWS::KMS::Key").values()
        for statement in key["Properties"]["KeyPolicy"]["Statement"]
        if statement.get("Sid") == "FsxDataRepository"
    ]


def test_the_buckets_key_is_told_to_admit_fsx_without_knowing_the_file_system(
    stack: Stack,
) -> None:
    key = kms.Key(stack, "Key")
    file_system(stack, s3.Bucket(stack, "Bucket", encryption_key=key))
    (statement,) = key_statements(stack)
    arn = json.dumps(statement["Condition"]["ArnLike"]["aws:PrincipalArn"])
    assert "s3.data-source.lustre.fsx.amazonaws.com/AWSServiceRoleForFSxS3Access_*" in arn
    # Only roles of this very account, although the principal is a pattern.
    assert statement["Condition"]["StringEquals"] == {"kms:CallerAccount": "123456789012"}


def test_one_key_is_told_once_however_many_buckets_it_has(stack: Stack) -> None:
    key = kms.Key(stack, "Key")
    files = file_system(stack, s3.Bucket(stack, "Bucket", encryption_key=key))
    runs = s3.Bucket(stack, "Runs", encryption_key=key)
    export_checkpoints(stack, "Link", file_system=files, bucket=runs, job="job")
    assert len(key_statements(stack)) == 1


def test_an_imported_key_is_left_alone_and_what_it_needs_is_told(stack: Stack) -> None:
    key = kms.Key.from_key_arn(stack, "Key", KEY_ARN)
    bucket = s3.Bucket.from_bucket_attributes(
        stack, "Bucket", bucket_name="data", encryption_key=key
    )
    file_system(stack, bucket)
    assert lustre(stack)["KmsKeyId"] == KEY_ARN
    words = Match.string_like_regexp("imported, so its policy is not changed.*kms:GenerateDataKey")
    assert len(Annotations.from_stack(stack).find_warning("*", words)) == 1


def test_a_bucket_without_a_key_gives_the_file_system_its_own(stack: Stack) -> None:
    file_system(stack, s3.Bucket.from_bucket_name(stack, "Bucket", "data"))
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::KMS::Key", 1)
    assert "Fn::GetAtt" in lustre(stack)["KmsKeyId"]


def test_metadata_speed_is_set_at_creation_since_it_cannot_be_later(stack: Stack) -> None:
    file_system(stack, s3.Bucket(stack, "Bucket"), metadata_iops=6000)
    assert lustre(stack)["LustreConfiguration"]["MetadataConfiguration"] == {
        "Mode": "USER_PROVISIONED",
        "Iops": 6000,
    }


def test_efa_takes_all_traffic_among_the_servers(stack: Stack) -> None:
    file_system(
        stack, s3.Bucket(stack, "Bucket"), efa=True, storage_gib=4800, throughput_per_tib=1000
    )
    assert lustre(stack)["LustreConfiguration"]["EfaEnabled"] is True
    template = Template.from_stack(stack)
    for kind in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress"):
        template.has_resource_properties(kind, {"IpProtocol": "-1"})


def test_an_existing_group_gets_the_rules_and_no_new_one_is_made(stack: Stack) -> None:
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1")
    file_system(stack, s3.Bucket(stack, "Bucket"), security_group=group)
    assert lustre(stack)["SecurityGroupIds"] == ["sg-1"]
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::EC2::SecurityGroup", 0)
    template.all_resources_properties("AWS::EC2::SecurityGroupIngress", {"GroupId": "sg-1"})
    template.resource_count_is("AWS::EC2::SecurityGroupIngress", 2)


def test_the_removal_policy_is_the_users(stack: Stack) -> None:
    file_system(stack, s3.Bucket(stack, "Bucket"), removal_policy=RemovalPolicy.DESTROY)
    template = Template.from_stack(stack)
    for kind in ("AWS::FSx::FileSystem", "AWS::FSx::DataRepositoryAssociation"):
        template.has_resource(kind, {"DeletionPolicy": "Delete"})


def test_checkpoints_appear_beside_the_dataset_and_go_with_their_job(stack: Stack) -> None:
    files = file_system(stack, s3.Bucket(stack, "Bucket"))
    export_checkpoints(stack, "Link", file_system=files, bucket=s3.Bucket(stack, "Runs"), job="job")
    Template.from_stack(stack).has_resource(
        "AWS::FSx::DataRepositoryAssociation",
        {
            "Properties": {
                "FileSystemPath": "/checkpoints/job",
                "S3": {"AutoExportPolicy": {"Events": ["NEW", "CHANGED"]}},
            },
            "DeletionPolicy": "Delete",
        },
    )


def test_fails_when_a_file_system_would_have_nine_associations(stack: Stack) -> None:
    files = file_system(stack, s3.Bucket(stack, "Bucket"))
    runs = s3.Bucket(stack, "Runs")
    for number in range(7):
        export_checkpoints(
            stack, f"Link{number}", file_system=files, bucket=runs, job=f"job{number}"
        )
    with pytest.raises(ValueError, match=r"would have 9 data repository.*/dataset.*FSx allows 8"):
        export_checkpoints(stack, "Link7", file_system=files, bucket=runs, job="job7")


def test_fails_when_one_bucket_would_be_linked_twice(stack: Stack) -> None:
    bucket = s3.Bucket(stack, "Bucket")
    files = file_system(stack, bucket)
    with pytest.raises(ValueError, match=r"in one bucket, Stack/Bucket.*FSx links no object twice"):
        export_checkpoints(stack, "Link", file_system=files, bucket=bucket, job="job")


@pytest.mark.parametrize("path", ["dataset", ""])
def test_fails_for_a_path_that_is_not_absolute(stack: Stack, path: str) -> None:
    with pytest.raises(ValueError, match="must begin with a slash"):
        SharedFileSystem.from_attributes(
            file_system_id="fs-1",
            mount_name="abcdefgh",
            security_group=ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1"),
            availability_zone="us-west-2b",
            dataset_bucket=s3.Bucket.from_bucket_name(stack, "Bucket", "data"),
            dataset_path=path,
        )

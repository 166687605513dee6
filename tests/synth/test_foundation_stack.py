"""FoundationStack: what is stateful stays, is private, and is created in the right order."""

from __future__ import annotations

import shlex
from itertools import pairwise
from pathlib import Path
from typing import Any

from aws_cdk import App, Stack
from aws_cdk.assertions import Match, Template

from app import build
from tests.synth.conftest import IN_IMAGE

KEPT = "RetainExceptOnCreate"
"""Stays on delete and replacement; a first create that fails leaves nothing billed behind."""


def only(template: Any, kind: str) -> tuple[str, dict[str, Any]]:
    ((name, resource),) = template.find_resources(kind).items()
    return name, resource


def test_the_file_system_is_the_one_the_design_names(default: Any) -> None:
    _, file_system = only(default.foundation, "AWS::FSx::FileSystem")
    properties = file_system["Properties"]
    assert properties["FileSystemType"] == "LUSTRE"
    assert properties["FileSystemTypeVersion"] == "2.15"
    assert properties["StorageCapacity"] == 1200
    assert properties["LustreConfiguration"] == {
        "DeploymentType": "PERSISTENT_2",
        "PerUnitStorageThroughput": 250,
        "DataCompressionType": "LZ4",
        # Cannot be added later.
        "MetadataConfiguration": {"Mode": "AUTOMATIC"},
    }
    assert properties["KmsKeyId"]["Fn::GetAtt"][0] in default.foundation.find_resources(
        "AWS::KMS::Key"
    )


def test_the_file_system_waits_for_its_group_and_every_rule_of_it(default: Any) -> None:
    """aws-parallelcluster#6181: created before its rules, FSx fails on port 988."""
    _, file_system = only(default.foundation, "AWS::FSx::FileSystem")
    group = file_system["Properties"]["SecurityGroupIds"][0]["Fn::GetAtt"][0]
    rules = {
        name
        for kind in ("AWS::EC2::SecurityGroupIngress", "AWS::EC2::SecurityGroupEgress")
        for name in default.foundation.find_resources(kind)
    }
    assert len(rules) == 4
    assert {group, *rules} <= set(file_system["DependsOn"])


def test_the_file_servers_reach_each_other_on_the_lustre_ports_both_ways(default: Any) -> None:
    for kind, peer in (
        ("AWS::EC2::SecurityGroupIngress", "SourceSecurityGroupId"),
        ("AWS::EC2::SecurityGroupEgress", "DestinationSecurityGroupId"),
    ):
        rules = [r["Properties"] for r in default.foundation.find_resources(kind).values()]
        assert sorted((r["FromPort"], r["ToPort"]) for r in rules) == [(988, 988), (1018, 1023)]
        assert all(r[peer] == r["GroupId"] and r["IpProtocol"] == "tcp" for r in rules)


def test_the_dataset_bucket_is_linked_and_followed(default: Any) -> None:
    _, association = only(default.foundation, "AWS::FSx::DataRepositoryAssociation")
    properties = association["Properties"]
    assert properties["FileSystemPath"] == "/dataset"
    assert properties["BatchImportMetaDataOnCreate"] is True
    assert properties["S3"]["AutoImportPolicy"]["Events"] == ["NEW", "CHANGED", "DELETED"]
    bucket = properties["DataRepositoryPath"]["Fn::Join"][1][1]["Ref"]
    assert bucket in default.foundation.find_resources("AWS::S3::Bucket")


def test_what_holds_data_stays_and_so_does_the_network_it_holds(default: Any) -> None:
    """A retained file system keeps interfaces in its subnet, which then cannot be deleted."""
    for kind in (
        "AWS::FSx::FileSystem",
        "AWS::FSx::DataRepositoryAssociation",
        "AWS::S3::Bucket",
        "AWS::KMS::Key",
        "AWS::EC2::VPC",
        "AWS::EC2::Subnet",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::EC2::SecurityGroupEgress",
    ):
        for name, resource in default.foundation.find_resources(kind).items():
            assert resource.get("DeletionPolicy") == KEPT, name
            assert resource.get("UpdateReplacePolicy") == "Retain", name
    _, file_system = only(default.foundation, "AWS::FSx::FileSystem")
    group = file_system["Properties"]["SecurityGroupIds"][0]["Fn::GetAtt"][0]
    groups = default.foundation.find_resources("AWS::EC2::SecurityGroup")
    assert groups[group]["DeletionPolicy"] == KEPT


def test_buckets_are_private_encrypted_and_refuse_plain_http(default: Any) -> None:
    buckets = default.foundation.find_resources("AWS::S3::Bucket")
    (logs,) = (name for name in buckets if "AccessLogs" in name)
    assert len(buckets) == 3
    for name, bucket in buckets.items():
        properties = bucket["Properties"]
        assert all(properties["PublicAccessBlockConfiguration"].values())
        (rule,) = properties["BucketEncryption"]["ServerSideEncryptionConfiguration"]
        # S3 delivers its logs to no bucket with a customer-managed key.
        wanted = "AES256" if name == logs else "aws:kms"
        assert rule["ServerSideEncryptionByDefault"]["SSEAlgorithm"] == wanted
        (lifecycle,) = properties["LifecycleConfiguration"]["Rules"]
        if name == logs:
            assert lifecycle["ExpirationInDays"] == 365
            continue
        assert lifecycle["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
        assert properties["LoggingConfiguration"]["DestinationBucketName"] == {"Ref": logs}
    policies = default.foundation.find_resources("AWS::S3::BucketPolicy")
    assert {p["Properties"]["Bucket"]["Ref"] for p in policies.values()} == set(buckets)
    for policy in policies.values():
        assert any(
            statement["Effect"] == "Deny"
            and statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
            for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        )


def test_s3_alone_writes_access_logs_and_each_bucket_under_its_own_prefix(default: Any) -> None:
    prefixes = {
        bucket["Properties"]["LoggingConfiguration"]["LogFilePrefix"]
        for bucket in default.foundation.find_resources("AWS::S3::Bucket").values()
        if "LoggingConfiguration" in bucket["Properties"]
    }
    assert prefixes == {"DatasetBucket/", "CheckpointStore/"}
    (statement,) = (
        statement
        for policy in default.foundation.find_resources("AWS::S3::BucketPolicy").values()
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Allow"
    )
    assert statement["Principal"] == {"Service": "logging.s3.amazonaws.com"}
    assert statement["Action"] == "s3:PutObject"
    assert statement["Condition"] == {
        "StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}
    }


def test_checkpoints_are_not_versioned_and_datasets_are(default: Any) -> None:
    versioned = {
        name: "VersioningConfiguration" in bucket["Properties"]
        for name, bucket in default.foundation.find_resources("AWS::S3::Bucket").items()
    }
    assert sorted(versioned.values()) == [False, False, True]
    assert next(v for name, v in versioned.items() if "Dataset" in name)


def test_the_key_admits_fsx_and_alarms_of_this_account_only(default: Any) -> None:
    _, key = only(default.foundation, "AWS::KMS::Key")
    assert key["Properties"]["EnableKeyRotation"] is True
    statements = {s["Sid"]: s for s in key["Properties"]["KeyPolicy"]["Statement"] if "Sid" in s}
    fsx = statements["FsxDataRepository"]["Condition"]
    assert fsx["StringEquals"] == {"kms:CallerAccount": {"Ref": "AWS::AccountId"}}
    assert "AWSServiceRoleForFSxS3Access_*" in str(fsx["ArnLike"]["aws:PrincipalArn"])
    alarms = statements["AlarmsToTopics"]
    assert alarms["Principal"] == {"Service": "cloudwatch.amazonaws.com"}
    assert alarms["Condition"] == {"StringEquals": {"aws:SourceAccount": {"Ref": "AWS::AccountId"}}}


def test_there_is_no_way_to_the_internet(default: Any) -> None:
    for kind in ("AWS::EC2::NatGateway", "AWS::EC2::InternetGateway", "AWS::EC2::Route"):
        default.foundation.resource_count_is(kind, 0)
    default.foundation.has_resource_properties(
        "AWS::EC2::VPCEndpoint",
        {
            "VpcEndpointType": "Gateway",
            "ServiceName": Match.object_like(
                {"Fn::Join": ["", ["com.amazonaws.", {"Ref": "AWS::Region"}, ".s3"]]}
            ),
        },
    )


def test_flow_logs_are_kept_for_three_months(default: Any) -> None:
    default.foundation.has_resource_properties("AWS::EC2::FlowLog", {"TrafficType": "REJECT"})
    # Its role is for flow logs of this account only.
    roles = default.foundation.find_resources("AWS::IAM::Role").values()
    (trust,) = (
        statement
        for role in roles
        for statement in role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
        if statement["Principal"] == {"Service": "vpc-flow-logs.amazonaws.com"}
    )
    assert set(trust["Condition"]) == {"StringEquals", "ArnLike"}
    default.foundation.has_resource_properties("AWS::Logs::LogGroup", {"RetentionInDays": 90})


def test_without_a_zone_the_regions_first_is_taken_with_a_warning(default: Any) -> None:
    _, subnet = only(default.foundation, "AWS::EC2::Subnet")
    assert subnet["Properties"]["AvailabilityZone"] == {"Fn::Select": [0, {"Fn::GetAZs": ""}]}
    metadata = (default.folder / "FoundationStack.metadata.json").read_text()
    assert "no availability_zone given" in metadata


def test_its_size_and_that_it_never_shrinks_are_told(default: Any) -> None:
    metadata = (default.folder / "FoundationStack.metadata.json").read_text()
    assert "the file system has 1200 GiB at 250 MB/s per TiB, sized for the jobs" in metadata


def test_the_tutorial_sizes_the_file_system_for_the_job_that_it_deploys_later(
    tmp_path: Path,
) -> None:
    """Another size would be an update that FSx refuses where it is smaller."""
    lines = [
        line
        for line in (Path(__file__).parents[2] / "docs/tutorial.md").read_text().splitlines()
        if line.startswith("npx cdk deploy")
    ]
    sizes = []
    for number, line in enumerate(lines):
        words = shlex.split(line)
        given = dict(word.split("=", 1) for flag, word in pairwise(words) if flag == "-c")
        app = build(App(context={**IN_IMAGE, **given}, outdir=str(tmp_path / str(number))))
        stack = app.node.find_child("FoundationStack")
        assert isinstance(stack, Stack)
        (found,) = Template.from_stack(stack).find_resources("AWS::FSx::FileSystem").values()
        sizes.append(found["Properties"])
    assert len(sizes) == 2
    assert sizes[0] == sizes[1]


def test_a_given_zone_is_used_without_asking_the_account(demo: Any) -> None:
    _, subnet = only(demo.foundation, "AWS::EC2::Subnet")
    assert subnet["Properties"]["AvailabilityZone"] == "us-west-2b"
    assert '"missing"' not in (demo.folder / "manifest.json").read_text()

"""A foundation of new and existing parts, in any mixture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template

from cdk_blackwell import CheckpointStore, Foundation, TrainingNetwork

KEY_ARN = "arn:aws:kms:us-west-2:123456789012:key/11111111-2222-3333-4444-555555555555"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    return Stack(App(outdir=str(tmp_path)), "Stack", env=Environment(region="us-west-2"))


def existing(stack: Stack) -> dict[str, Any]:
    return {
        "network": TrainingNetwork.from_subnet(
            vpc=ec2.Vpc.from_vpc_attributes(
                stack, "Vpc", vpc_id="vpc-1", availability_zones=["us-west-2b"]
            ),
            subnet=ec2.Subnet.from_subnet_attributes(
                stack, "Subnet", subnet_id="subnet-1", availability_zone="us-west-2b"
            ),
        ),
        "encryption_key": kms.Key.from_key_arn(stack, "Key", KEY_ARN),
        "dataset_bucket": s3.Bucket.from_bucket_name(stack, "Data", "data"),
        "checkpoint_store": CheckpointStore.from_bucket(
            s3.Bucket.from_bucket_name(stack, "Runs", "runs")
        ),
    }


NEW = {
    "network": "AWS::EC2::VPC",
    "encryption_key": "AWS::KMS::Key",
    "dataset_bucket": "AWS::S3::Bucket",
    "checkpoint_store": "AWS::S3::Bucket",
}


@pytest.mark.parametrize("given", NEW)
def test_a_part_that_is_given_is_not_made(stack: Stack, given: str) -> None:
    parts: dict[str, Any] = {given: existing(stack)[given]}
    if given != "network":
        parts["availability_zone"] = "us-west-2b"
    Foundation(stack, "Foundation", **parts)
    template = Template.from_stack(stack)
    for part, kind in NEW.items():
        shared = [other for other in NEW if NEW[other] == kind and other != given]
        count = len(shared) if part == given else len({part, *shared})
        # One more bucket holds the access logs of the new ones.
        template.resource_count_is(kind, count + (kind == "AWS::S3::Bucket"))


def test_on_existing_parts_it_adds_the_file_system_alone(stack: Stack) -> None:
    foundation = Foundation(stack, "Foundation", **existing(stack))
    kinds = {
        resource["Type"] for resource in Template.from_stack(stack).to_json()["Resources"].values()
    }
    assert kinds == {
        "AWS::EC2::SecurityGroup",
        "AWS::EC2::SecurityGroupEgress",
        "AWS::EC2::SecurityGroupIngress",
        "AWS::FSx::DataRepositoryAssociation",
        "AWS::FSx::FileSystem",
    }
    assert foundation.ready == []
    assert foundation.file_system.availability_zone == "us-west-2b"


@pytest.mark.parametrize(
    ("names", "more", "words"),
    [
        ([], {}, "availability_zone is missing"),
        (["network"], {"availability_zone": "us-west-2b"}, "belong to a new one"),
        (["network"], {"nat": True}, "belong to a new one"),
        (
            ["network", "checkpoint_store"],
            {"versioned_checkpoints": True},
            "versioned_checkpoints belongs to a new checkpoint store",
        ),
    ],
)
def test_fails_when_what_is_given_contradicts_itself(
    stack: Stack, names: list[str], more: dict[str, Any], words: str
) -> None:
    given = {name: value for name, value in existing(stack).items() if name in names}
    with pytest.raises(ValueError, match=words):
        Foundation(stack, "Foundation", **given, **more)

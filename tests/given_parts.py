"""Parts of an account that exist already, as constructs import them."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3

from cdk_blackwell import CheckpointStore, SharedFileSystem


def given_parts(stack: Stack, *, key: kms.IKey | None, zone: str) -> dict[str, Any]:
    """Arguments of a job for network, file system, checkpoints and key, imported into ``stack``."""
    return {
        "vpc": ec2.Vpc.from_vpc_attributes(stack, "Vpc", vpc_id="vpc-1", availability_zones=[zone]),
        "subnet": ec2.Subnet.from_subnet_attributes(
            stack, "Subnet", subnet_id="subnet-1", availability_zone=zone
        ),
        "file_system": SharedFileSystem.from_attributes(
            file_system_id="fs-0123456789abcdef0",
            mount_name="abcdefgh",
            security_group=ec2.SecurityGroup.from_security_group_id(stack, "Files", "sg-files"),
            availability_zone=zone,
            dataset_bucket=s3.Bucket.from_bucket_name(stack, "Data", "data"),
        ),
        "checkpoint_store": CheckpointStore.from_bucket(
            s3.Bucket.from_bucket_attributes(stack, "Runs", bucket_name="runs", encryption_key=key)
        ),
        "encryption_key": key,
    }

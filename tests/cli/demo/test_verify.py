"""What the demo removes at its end, as an owner would by hand."""

from __future__ import annotations

from typing import Any

import boto3
import pytest
from moto import mock_aws

from cdk_blackwell.cli.demo.verify import remove_retained


class Account:
    """The clients of an account that holds nothing but buckets."""

    def client(self, service: str) -> Any:
        session: Any = boto3.session.Session()
        return session.client(service) if service != "fsx" else NoFileSystems()


class NoFileSystems:
    def describe_file_systems(self) -> dict[str, list[dict[str, str]]]:
        return {"FileSystems": []}


@pytest.mark.slow
@mock_aws
def test_versioned_buckets_of_more_than_one_page_are_emptied_and_removed() -> None:
    s3, ec2 = boto3.client("s3"), boto3.client("ec2")
    place = {"LocationConstraint": "us-west-2"}
    for name in ("team-access-logs", "team-runs"):
        s3.create_bucket(Bucket=name, CreateBucketConfiguration=place)
    s3.put_bucket_versioning(
        Bucket="team-access-logs", VersioningConfiguration={"Status": "Enabled"}
    )
    for number in range(1_050):
        s3.put_object(Bucket="team-access-logs", Key=f"{number % 700}", Body=b"")
    s3.delete_object(Bucket="team-access-logs", Key="0")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    removed = remove_retained(Account(), vpc=vpc)  # type: ignore[arg-type]
    assert {"team-access-logs", "team-runs", vpc} <= set(removed)
    assert s3.list_buckets()["Buckets"] == []

"""A job on what the account already has: VPC, file system, buckets, key, security group, topic.

Nothing stateful is made. The file system must already show the dataset bucket under
``/dataset``, and the topic's policy must let CloudWatch alarms publish.
"""

from __future__ import annotations

from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sns as sns
from constructs import Construct

from cdk_blackwell import CheckpointStore, ModelShape, SharedFileSystem, SmallModelJob


class OnWhatExists(Stack):
    """A 3B model in a network that a platform team runs."""

    def __init__(self, scope: Construct, construct_id: str, **props: object) -> None:
        super().__init__(scope, construct_id, **props)  # type: ignore[arg-type]
        subnet = ec2.Subnet.from_subnet_attributes(
            self,
            "Subnet",
            subnet_id="subnet-0123456789abcdef0",
            availability_zone="us-west-2b",
            route_table_id="rtb-0123456789abcdef0",
        )
        vpc = ec2.Vpc.from_vpc_attributes(
            self,
            "Vpc",
            vpc_id="vpc-0123456789abcdef0",
            availability_zones=["us-west-2b"],
            isolated_subnet_ids=[subnet.subnet_id],
            isolated_subnet_route_table_ids=[subnet.route_table.route_table_id],
        )
        key = kms.Key.from_key_arn(
            self, "Key", f"arn:aws:kms:{self.region}:{self.account}:key/11111111-2222-3333"
        )
        dataset = s3.Bucket.from_bucket_name(self, "Dataset", "team-datasets")
        runs = s3.Bucket.from_bucket_attributes(
            self, "Runs", bucket_name="team-training-runs", encryption_key=key
        )
        file_system = SharedFileSystem.from_attributes(
            file_system_id="fs-0123456789abcdef0",
            mount_name="abcdefgh",
            security_group=ec2.SecurityGroup.from_security_group_id(
                self, "FileSystemGroup", "sg-0123456789abcdef0"
            ),
            availability_zone="us-west-2b",
            dataset_bucket=dataset,
        )
        SmallModelJob(
            self,
            "Pretrain",
            vpc=vpc,
            subnet=subnet,
            file_system=file_system,
            checkpoint_store=CheckpointStore.from_bucket(runs),
            encryption_key=key,
            topic=sns.Topic.from_topic_arn(
                self, "Topic", f"arn:aws:sns:{self.region}:{self.account}:team-training"
            ),
            model=ModelShape.preset("llama-3.2-3b"),
            dataset_prefix="web/v3",
            sequence_length=8192,
            train_tokens=22_000_000_000,
            max_runtime=Duration.days(2),
            hourly_price_usd=113.93,
            max_cost_usd=20_000,
        )


app = App()
OnWhatExists(app, "OnWhatExists", env=Environment(account="123456789012", region="us-west-2"))
app.synth()

"""The application's stacks, and one for each other way in which the constructs are used."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from aws_cdk import App, Duration, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns

from app import build
from cdk_blackwell import (
    Capacity,
    Foundation,
    LargeShardedJob,
    MidModelJob,
    PackageIndex,
    S3Prefix,
    SharedFileSystem,
    SmallModelJob,
    TrainingImage,
)
from tests.given_parts import given_parts
from tests.jobs.examples import ACCOUNT, KEY_ARN, LARGE, MID, PLAN, REGION, SMALL, ZONE

IMAGE: Final = {
    "image": f"{ACCOUNT}.dkr.ecr.{REGION}.amazonaws.com/own:1",
    "packages_in_image": "true",
}


def application(folder: Path) -> App:
    """Foundation and all tiers, not yet synthesised."""
    return build(App(context=IMAGE, outdir=str(folder)))


def everything(folder: Path) -> App:
    """The same and the other ways, not yet synthesised."""
    app = application(folder)
    for name, add in {
        "WithNat": _with_nat,
        "Capacities": _capacities,
        "Existing": _existing,
    }.items():
        add(Stack(app, name, env=Environment(account=ACCOUNT, region=REGION)))
    return app


def _with_nat(stack: Stack) -> None:
    """Several nodes, packages from an index, a token, weights and versions."""
    bucket = s3.Bucket.from_bucket_name(stack, "Weights", "weights")
    secret = secretsmanager.Secret.from_secret_complete_arn(
        stack, "Token", f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:hf-AbCdEf"
    )
    props = {key: value for key, value in MID.items() if key != "packages_in_image"}
    MidModelJob(
        stack,
        "Train",
        foundation=Foundation(
            stack, "Foundation", availability_zone=ZONE, nat=True, versioned_checkpoints=True
        ),
        instance_count=2,
        package_index=PackageIndex.code_artifact(domain="team", repository="python"),
        hugging_face_token=secret,
        initial_weights=S3Prefix(bucket=bucket, prefix="llama"),
        **props,
    )


def _capacities(stack: Stack) -> None:
    """Each kind of capacity, on a file system that speaks EFA."""
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    fast = SharedFileSystem(
        stack,
        "Fast",
        vpc=foundation.network.vpc,
        subnet=foundation.network.subnet,
        dataset_bucket=foundation.dataset_bucket,
        encryption_key=foundation.encryption_key,
        efa=True,
    )
    for name, capacity in {
        "Warm": Capacity.on_demand(keep_alive=Duration.minutes(30)),
        "Planned": Capacity.training_plan(PLAN, fee_usd=1000, availability_zone=ZONE),
        "Spot": Capacity.spot(max_wait=Duration.days(2)),
    }.items():
        SmallModelJob(stack, name, foundation=foundation, capacity=capacity, run_id="a", **SMALL)
    MidModelJob(stack, "OverEfa", foundation=foundation, file_system=fast, instance_count=2, **MID)


def _existing(stack: Stack) -> None:
    """Parts that exist, once with a role of its own and once with a given one."""
    key = kms.Key.from_key_arn(stack, "Key", KEY_ARN)
    repository = ecr.Repository.from_repository_attributes(
        stack,
        "Images",
        repository_arn=f"arn:aws:ecr:{REGION}:210987654321:repository/train",
        repository_name="train",
    )
    parts: dict[str, Any] = {
        **given_parts(stack, key=key, zone=ZONE),
        "image": TrainingImage.from_ecr_repository(repository, "sha256:" + "0123456789abcdef" * 4),
        "topic": sns.Topic.from_topic_arn(stack, "Topic", f"arn:aws:sns:{REGION}:{ACCOUNT}:team"),
    }
    role = iam.Role.from_role_arn(stack, "Role", f"arn:aws:iam::{ACCOUNT}:role/training")
    group = ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1")
    LargeShardedJob(stack, "Own", instance_count=2, **parts, **LARGE)
    LargeShardedJob(
        stack, "Given", instance_count=2, role=role, security_group=group, **parts, **LARGE
    )

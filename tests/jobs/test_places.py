"""A job lies where its network, its files and its buckets are, or says what is elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Annotations, Match, Template

from cdk_blackwell import (
    CheckpointStore,
    Foundation,
    S3Prefix,
    SharedFileSystem,
    SmallModelJob,
    TrainingNetwork,
)
from tests.given_parts import given_parts
from tests.jobs.examples import ACCOUNT, KEY_ARN, REGION, SMALL, ZONE

HERE = Environment(region=REGION, account=ACCOUNT)


@pytest.fixture
def app(tmp_path: Path) -> App:
    return App(outdir=str(tmp_path))


@pytest.mark.parametrize(
    ("foundation", "job", "words"),
    [
        (HERE, Environment(region="us-east-1", account=ACCOUNT), ["us-west-2", "one region"]),
        (HERE, Environment(region=REGION, account="210987654321"), ["210987654321", "by its id"]),
        (None, HERE, ["do not agree on their region", "the same env"]),
        (HERE, None, ["do not agree on their region", "the same env"]),
        (Environment(region=REGION), HERE, ["do not agree on their account"]),
    ],
)
def test_fails_on_a_foundation_that_its_stack_cannot_refer_to(
    app: App, foundation: Environment | None, job: Environment | None, words: list[str]
) -> None:
    base = Foundation(Stack(app, "Base", env=foundation), "Foundation", availability_zone=ZONE)
    with pytest.raises(ValueError, match="vpc Base/Foundation/Network/ImportedVpc") as caught:
        SmallModelJob(Stack(app, "Mine", env=job), "Job", foundation=base, **SMALL)
    for word in words:
        assert word in str(caught.value)


def test_parts_imported_by_their_ids_are_of_use_in_any_stack(app: App) -> None:
    parts = given_parts(Stack(app, "Imports"), key=None, zone=ZONE)
    mine = Stack(app, "Mine", env=HERE)
    SmallModelJob(mine, "Job", **parts, **SMALL)
    Template.from_stack(mine)


def elsewhere(scope: Stack) -> s3.IBucket:
    return s3.Bucket.from_bucket_attributes(scope, "There", bucket_name="there", region="eu-west-1")


def test_fails_on_buckets_of_another_region(app: App) -> None:
    stack = Stack(app, "Mine", env=HERE)
    bucket = elsewhere(stack)
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    cases: dict[str, dict[str, Any]] = {
        "checkpoint bucket": {"checkpoint_store": CheckpointStore.from_bucket(bucket)},
        "bucket of initial_weights": {"initial_weights": S3Prefix(bucket=bucket)},
    }
    for number, (name, given) in enumerate(cases.items()):
        with pytest.raises(ValueError, match=rf"{name} Mine/There is in eu-west-1, the stack in"):
            SmallModelJob(stack, f"Job{number}", foundation=foundation, **given, **SMALL)
    imported = given_parts(stack, key=None, zone=ZONE)
    imported["file_system"] = SharedFileSystem.from_attributes(
        file_system_id="fs-0123456789abcdef0",
        mount_name="abcdefgh",
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "Theirs", "sg-theirs"),
        availability_zone=ZONE,
        dataset_bucket=bucket,
    )
    with pytest.raises(ValueError, match="dataset bucket Mine/There is in eu-west-1"):
        SmallModelJob(stack, "OfTheirs", **imported, **SMALL)
    with pytest.raises(ValueError, match="dataset_bucket Mine/There is in eu-west-1"):
        Foundation(stack, "Other", availability_zone=ZONE, dataset_bucket=bucket)


def test_fails_on_a_key_of_another_region(app: App) -> None:
    stack = Stack(app, "Mine", env=HERE)
    key = kms.Key.from_key_arn(stack, "There", KEY_ARN.replace(REGION, "eu-west-1"))
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    says = "encryption_key Mine/There is in eu-west-1, the stack in us-west-2: S3, FSx, SNS"
    with pytest.raises(ValueError, match=says):
        SmallModelJob(stack, "Job", foundation=foundation, encryption_key=key, **SMALL)
    with pytest.raises(ValueError, match=says):
        Foundation(stack, "Other", availability_zone=ZONE, encryption_key=key)
    with pytest.raises(ValueError, match=says):
        CheckpointStore(stack, "Store", encryption_key=key)


def test_a_key_of_another_account_is_used_and_what_it_must_allow_is_told(app: App) -> None:
    stack = Stack(app, "Mine", env=HERE)
    key = kms.Key.from_key_arn(stack, "Theirs", KEY_ARN.replace(ACCOUNT, "210987654321"))
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE, encryption_key=key)
    SmallModelJob(stack, "Job", foundation=foundation, **SMALL)
    words = Match.string_like_regexp("encryption_key belongs to account 210987654321: its policy")
    assert len(Annotations.from_stack(stack).find_warning("*", words)) == 1


def test_fails_on_a_subnet_that_does_not_say_its_zone(app: App) -> None:
    stack = Stack(app, "Mine", env=HERE)
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    subnet = ec2.Subnet.from_subnet_id(stack, "Subnet", "subnet-1")
    says = "subnet Mine/Subnet is imported without its availability zone: use"
    with pytest.raises(ValueError, match=says):
        SmallModelJob(stack, "Job", foundation=foundation, subnet=subnet, **SMALL)
    with pytest.raises(ValueError, match=says):
        SharedFileSystem(
            stack,
            "Files",
            vpc=foundation.vpc,
            subnet=subnet,
            dataset_bucket=foundation.dataset_bucket,
        )
    with pytest.raises(ValueError, match=says):
        _ = TrainingNetwork.from_subnet(vpc=foundation.vpc, subnet=subnet).availability_zone


@pytest.mark.parametrize("ids", [("训练", "测试"), ("café", "cafè")])
def test_jobs_named_in_other_scripts_have_names_of_their_own(
    app: App, ids: tuple[str, ...]
) -> None:
    stack = Stack(app, "Mine", env=HERE)
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    names = {SmallModelJob(stack, each, foundation=foundation, **SMALL).job_name for each in ids}
    assert len(names) == 2
    assert all(name.isascii() and name.startswith("Mine") for name in names)

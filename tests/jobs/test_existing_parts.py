"""A job on what an organisation has already: every part by its interface, nothing made anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_ecr as ecr
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Annotations, Match, Template

from cdk_blackwell import (
    Capacity,
    CheckpointStore,
    Foundation,
    LargeShardedJob,
    PackageIndex,
    S3Prefix,
    SmallModelJob,
    TrainingImage,
)
from cdk_blackwell.compliance.service_model import check_training_request
from tests.given_parts import given_parts
from tests.jobs.examples import (
    ACCOUNT,
    KEY_ARN,
    LARGE,
    PLAN,
    REGION,
    SMALL,
    ZONE,
    channels_of,
    request_of,
)

DIGEST = "sha256:" + "0123456789abcdef" * 4
SECRET = f"arn:aws:secretsmanager:{REGION}:{ACCOUNT}:secret:hf-AbCdEf"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    app = App(outdir=str(tmp_path / "out"))
    return Stack(app, "Mine", env=Environment(region=REGION, account=ACCOUNT))


def existing(stack: Stack) -> dict[str, Any]:
    """Every part that can be given."""
    key = kms.Key.from_key_arn(stack, "Key", KEY_ARN)
    return {
        **given_parts(stack, key=key, zone=ZONE),
        "security_group": ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1"),
        "role": iam.Role.from_role_arn(stack, "Role", f"arn:aws:iam::{ACCOUNT}:role/training"),
        "log_group": logs.LogGroup.from_log_group_name(stack, "Log", "/team/controllers"),
        "topic": sns.Topic.from_topic_arn(
            stack, "Topic", f"arn:aws:sns:{REGION}:{ACCOUNT}:ml-platform"
        ),
        "initial_weights": S3Prefix(
            bucket=s3.Bucket.from_bucket_name(stack, "Weights", "weights"), prefix="llama"
        ),
        "image": TrainingImage.from_ecr_repository(
            ecr.Repository.from_repository_attributes(
                stack,
                "Images",
                repository_arn=f"arn:aws:ecr:{REGION}:210987654321:repository/train",
                repository_name="train",
            ),
            DIGEST,
        ),
        "hugging_face_token": secretsmanager.Secret.from_secret_complete_arn(
            stack, "Token", SECRET
        ),
    }


@pytest.fixture
def large(stack: Stack) -> Stack:
    LargeShardedJob(stack, "Job", **existing(stack), **{**LARGE, "instance_count": 2})
    return stack


def test_nothing_is_made_that_was_given(large: Stack) -> None:
    template = Template.from_stack(large)
    for kind in (
        "AWS::EC2::VPC",
        "AWS::EC2::SecurityGroup",
        "AWS::FSx::FileSystem",
        "AWS::KMS::Key",
        "AWS::S3::Bucket",
        "AWS::Logs::LogGroup",
        "AWS::SNS::Topic",
    ):
        template.resource_count_is(kind, 0)
    # The controller's own.
    template.resource_count_is("AWS::IAM::Role", 1)


def test_the_request_names_all_of_it(large: Stack) -> None:
    request = request_of(large)
    assert check_training_request(request) == []
    assert request["RoleArn"] == f"arn:aws:iam::{ACCOUNT}:role/training"
    assert request["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}
    assert request["OutputDataConfig"]["KmsKeyId"] == KEY_ARN
    image = request["AlgorithmSpecification"]["TrainingImage"]
    assert image == f"210987654321.dkr.ecr.{REGION}.amazonaws.com/train@{DIGEST}"
    weights = channels_of(request)["initial_weights"]["S3DataSource"]
    assert weights["S3Uri"] == "s3://weights/llama/"
    checkpoints = channels_of(request)["checkpoints"]["FileSystemDataSource"]
    assert checkpoints["DirectoryPath"] == "/abcdefgh/checkpoints/Mine-Job"


def test_the_environment_names_a_secret_and_never_holds_it(large: Stack) -> None:
    environment = request_of(large)["Environment"]
    assert environment["CDKB_HUGGING_FACE_SECRET"] == SECRET
    assert "{{resolve:" not in json.dumps(Template.from_stack(large).to_json())


def test_what_cannot_be_changed_from_here_is_told(large: Stack) -> None:
    words = Match.string_like_regexp(".*/Key is imported, so its policy is not changed")
    assert len(Annotations.from_stack(large).find_warning("*", words)) == 1


def test_the_controller_writes_to_the_given_log_group(large: Stack) -> None:
    Template.from_stack(large).has_resource_properties(
        "AWS::Lambda::Function", {"LoggingConfig": {"LogGroup": "/team/controllers"}}
    )


def test_alarms_and_controller_tell_the_given_topic(large: Stack) -> None:
    arn = f"arn:aws:sns:{REGION}:{ACCOUNT}:ml-platform"
    template = Template.from_stack(large)
    template.all_resources_properties("AWS::CloudWatch::Alarm", {"AlarmActions": [arn]})
    (function,) = template.find_resources("AWS::Lambda::Function").values()
    assert function["Properties"]["Environment"]["Variables"]["CDKB_TOPIC"] == arn
    # What it must allow for itself is told, since its policy cannot be changed from here.
    words = Match.string_like_regexp("topic Mine/Topic is imported.*let cloudwatch")
    assert len(Annotations.from_stack(large).find_warning("*", words)) == 1


def test_another_registry_is_reached_through_the_jobs_subnet(stack: Stack) -> None:
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    image = TrainingImage.from_uri("registry.example/team/train:1")
    SmallModelJob(stack, "Job", foundation=foundation, image=image, **SMALL)
    request = request_of(stack)
    assert request["AlgorithmSpecification"]["TrainingImageConfig"] == {
        "TrainingRepositoryAccessMode": "Vpc"
    }
    assert check_training_request(request) == []


def test_the_controller_may_use_the_key_of_the_topic_that_is_given(stack: Stack) -> None:
    """And no other for it: the key of exports is not the topic's."""
    key = KEY_ARN.replace("1111", "9999")
    topic = sns.Topic.from_topic_attributes(
        stack, "Topic", topic_arn=f"arn:aws:sns:{REGION}:{ACCOUNT}:ml-platform", key_arn=key
    )
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    SmallModelJob(stack, "Job", foundation=foundation, topic=topic, **SMALL)
    Template.from_stack(stack).has_resource_properties(
        "AWS::IAM::Policy",
        {
            "PolicyDocument": {
                "Statement": Match.array_with(
                    [
                        Match.object_like(
                            {"Action": ["kms:Decrypt", "kms:GenerateDataKey"], "Resource": key}
                        )
                    ]
                )
            }
        },
    )


def test_a_bucket_of_another_account_is_used_and_what_it_must_allow_is_told(
    stack: Stack,
) -> None:
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    theirs = s3.Bucket.from_bucket_attributes(
        stack, "Theirs", bucket_name="theirs", account="210987654321"
    )
    SmallModelJob(
        stack,
        "Job",
        foundation=foundation,
        checkpoint_store=CheckpointStore.from_bucket(theirs),
        **SMALL,
    )
    words = Match.string_like_regexp(
        f"checkpoint bucket belongs to account 210987654321.*role.*of account {ACCOUNT} in"
    )
    assert len(Annotations.from_stack(stack).find_warning("*", words)) == 1
    assert request_of(stack)["CheckpointConfig"]["S3Uri"].startswith("s3://theirs/")


def test_a_training_plans_zone_must_be_the_jobs(stack: Stack) -> None:
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    with pytest.raises(ValueError, match=r"plan is in us-west-2c, the job's subnet in us-west-2b"):
        SmallModelJob(
            stack,
            "Job",
            foundation=foundation,
            capacity=Capacity.training_plan(PLAN, availability_zone="us-west-2c"),
            **SMALL,
        )


def test_a_training_plan_may_be_used_by_its_controller_only(stack: Stack) -> None:
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    SmallModelJob(
        stack, "Job", foundation=foundation, capacity=Capacity.training_plan(PLAN), **SMALL
    )
    holders = [
        name
        for name, policy in Template.from_stack(stack).find_resources("AWS::IAM::Policy").items()
        if PLAN in json.dumps(policy)
    ]
    assert len(holders) == 1
    assert "ControllerPolicy" in holders[0]


def test_encryption_between_instances_is_off_unless_asked_for_and_warned_of(stack: Stack) -> None:
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    props = {**LARGE, "instance_count": 2}
    LargeShardedJob(stack, "Job", foundation=foundation, encrypt_between_instances=True, **props)
    assert request_of(stack)["EnableInterContainerTrafficEncryption"] is True
    words = Match.string_like_regexp("encrypt_between_instances slows.*EFA is not documented")
    assert len(Annotations.from_stack(stack).find_warning("*", words)) == 1


def test_packages_come_from_an_index_where_the_network_reaches_one(stack: Stack) -> None:
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE, nat=True)
    props = {key: value for key, value in SMALL.items() if key != "packages_in_image"}
    index = PackageIndex.code_artifact(domain="team", repository="python")
    SmallModelJob(stack, "Job", foundation=foundation, package_index=index, **props)
    environment = request_of(stack)["Environment"]
    assert environment["CDKB_PACKAGE_INDEX"] == f"codeartifact:team:{ACCOUNT}:python"
    policies = Template.from_stack(stack).find_resources("AWS::IAM::Policy")
    holders = [name for name, policy in policies.items() if "codeartifact:" in json.dumps(policy)]
    assert len(holders) == 1
    assert "TrainingRolePolicy" in holders[0]


def test_fails_when_packages_have_two_sources(stack: Stack) -> None:
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    with pytest.raises(ValueError, match="package_index and packages_in_image are both given"):
        SmallModelJob(
            stack, "Job", foundation=foundation, package_index=PackageIndex.default(), **SMALL
        )

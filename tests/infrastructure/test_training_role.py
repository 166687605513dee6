"""The training role: one job's prefix, one image, one subnet; new or somebody else's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_secretsmanager as secretsmanager
from aws_cdk.assertions import Template

from cdk_blackwell import CheckpointStore, S3Prefix, TrainingImage, TrainingRole

ROLE_ARN = "arn:aws:iam::123456789012:role/team/training"


@pytest.fixture
def stack(tmp_path: Path) -> Stack:
    app = App(outdir=str(tmp_path))
    return Stack(app, "Stack", env=Environment(region="us-west-2", account="123456789012"))


def make(stack: Stack, **props: Any) -> TrainingRole:
    return TrainingRole(
        stack,
        "TrainingRole",
        job="job",
        checkpoint_store=CheckpointStore.from_bucket(
            s3.Bucket.from_bucket_name(stack, "Runs", "runs")
        ),
        encryption_keys=[],
        subnet=ec2.Subnet.from_subnet_attributes(stack, "Subnet", subnet_id="subnet-1"),
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1"),
        image=TrainingImage.from_uri("registry.example/team/image:1"),
        **props,
    )


def statements(stack: Stack) -> list[dict[str, Any]]:
    (policy,) = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    found = policy["Properties"]["PolicyDocument"]["Statement"]
    assert isinstance(found, list)
    return found


def of(stack: Stack, sid_or_action: str) -> dict[str, Any]:
    (found,) = (
        statement
        for statement in statements(stack)
        if sid_or_action in (statement.get("Sid"), *_list(statement["Action"]))
    )
    return found


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def test_no_action_is_a_wildcard(stack: Stack) -> None:
    make(stack)
    for statement in statements(stack):
        assert not [action for action in _list(statement["Action"]) if "*" in action]


def test_only_training_jobs_of_this_account_and_region_can_have_it(stack: Stack) -> None:
    make(stack)
    (role,) = Template.from_stack(stack).find_resources("AWS::IAM::Role").values()
    (trust,) = role["Properties"]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Principal"] == {"Service": "sagemaker.amazonaws.com"}
    assert trust["Condition"]["ArnLike"]["aws:SourceArn"]["Fn::Join"][1][-1] == (
        ":sagemaker:us-west-2:123456789012:training-job/*"
    )


def test_interfaces_are_made_in_the_jobs_own_subnet_and_group_only(stack: Stack) -> None:
    make(stack)
    ends = [part["Fn::Join"][1][-1] for part in of(stack, "CreateInterfaces")["Resource"]]
    assert ends == [
        ":ec2:us-west-2:123456789012:network-interface/*",
        ":ec2:us-west-2:123456789012:security-group/sg-1",
        # Whoever owns it: a subnet may be shared by another account, and its id is its own.
        ":ec2:us-west-2:*:subnet/subnet-1",
    ]
    condition = of(stack, "LendInterfaces")["Condition"]["ArnLikeIfExists"]
    assert condition["ec2:Subnet"]["Fn::Join"][1][-1] == ":ec2:us-west-2:*:subnet/subnet-1"


def test_only_checkpoints_can_be_deleted(stack: Stack) -> None:
    """What launched a run, and what came of it, outlives whatever runs in the container."""
    make(stack)
    deleting = [s for s in statements(stack) if "s3:DeleteObject" in _list(s["Action"])]
    (statement,) = deleting
    assert statement["Resource"]["Fn::Join"][1][-1] == ":s3:::runs/job/runs/*/checkpoints/*"


def test_only_the_logs_of_this_jobs_own_attempts_can_be_written(stack: Stack) -> None:
    make(stack)
    group = "log-group:/aws/sagemaker/TrainingJobs"
    (of_group, of_streams) = (of(stack, sid)["Resource"] for sid in ("Logs", "OwnLogs"))
    assert of_group["Fn::Join"][1][-1].endswith(f":{group}")
    assert of_streams["Fn::Join"][1][-1].endswith(f":{group}:log-stream:job-*")
    writing = [s for s in statements(stack) if "logs:PutLogEvents" in _list(s["Action"])]
    assert [s["Sid"] for s in writing] == ["OwnLogs"]


def test_initial_weights_are_readable_below_their_prefix_only(stack: Stack) -> None:
    weights = S3Prefix(bucket=s3.Bucket.from_bucket_name(stack, "Weights", "weights"), prefix="l/3")
    make(stack, initial_weights=weights)
    assert "weights/l/3/*" in str(of(stack, "ReadWeights")["Resource"])
    assert of(stack, "ReadWeights")["Action"] == "s3:GetObject"
    assert of(stack, "ListWeights")["Condition"] == {"StringLike": {"s3:prefix": "l/3/*"}}
    assert weights.uri == "s3://weights/l/3/"


def test_a_whole_bucket_of_weights_can_be_listed_without_a_prefix(stack: Stack) -> None:
    weights = S3Prefix(bucket=s3.Bucket.from_bucket_name(stack, "Weights", "weights"))
    make(stack, initial_weights=weights)
    # A request without a prefix has no key s3:prefix, so any condition on it would refuse it.
    assert "Condition" not in of(stack, "ListWeights")


def test_the_key_of_initial_weights_only_decrypts(stack: Stack) -> None:
    key = kms.Key.from_key_arn(
        stack, "WeightsKey", "arn:aws:kms:us-west-2:123456789012:key/weights"
    )
    bucket = s3.Bucket.from_bucket_attributes(
        stack, "Weights", bucket_name="weights", encryption_key=key
    )
    make(stack, initial_weights=S3Prefix(bucket=bucket))
    of_the_key = [s["Action"] for s in statements(stack) if s["Resource"] == key.key_arn]
    assert of_the_key == ["kms:Decrypt"]


def test_no_action_of_the_role_is_a_wildcard(stack: Stack) -> None:
    key = kms.Key.from_key_arn(stack, "SomeKey", "arn:aws:kms:us-west-2:123456789012:key/some")
    bucket = s3.Bucket.from_bucket_attributes(
        stack, "Weights", bucket_name="weights", encryption_key=key
    )
    secret = secretsmanager.Secret.from_secret_name_v2(stack, "Token", "hf-token")
    make(stack, initial_weights=S3Prefix(bucket=bucket), secrets=[secret], output_key=key)
    for statement in statements(stack):
        assert "*" not in "".join(_list(statement["Action"]))


def test_a_secret_is_readable_and_nothing_else_of_secrets_manager(stack: Stack) -> None:
    secret = secretsmanager.Secret.from_secret_name_v2(stack, "Token", "hf-token")
    make(stack, secrets=[secret])
    found = of(stack, "secretsmanager:GetSecretValue")
    assert "hf-token" in str(found["Resource"])


def test_an_existing_role_gets_the_same_rights_and_no_new_role_is_made(stack: Stack) -> None:
    role = iam.Role.from_role_arn(stack, "Theirs", ROLE_ARN)
    assert make(stack, role=role).role.role_arn == ROLE_ARN
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::IAM::Role", 0)
    template.has_resource_properties("AWS::IAM::Policy", {"Roles": ["training"]})
    assert of(stack, "OwnRuns")


def test_fails_for_a_role_of_another_account(stack: Stack) -> None:
    role = iam.Role.from_role_arn(stack, "Theirs", ROLE_ARN.replace("123456789012", "210987654321"))
    with pytest.raises(ValueError, match="is of account 210987654321, the stack of 123456789012"):
        make(stack, role=role)


def test_an_immutable_role_is_left_as_it_is(stack: Stack) -> None:
    make(stack, role=iam.Role.from_role_arn(stack, "Theirs", ROLE_ARN, mutable=False))
    assert Template.from_stack(stack).find_resources("AWS::IAM::Policy") == {}


@pytest.mark.parametrize("prefix", ["/a", "a//b", "../a", "a b", "a*/b"])
def test_fails_for_a_prefix_that_is_no_folder(stack: Stack, prefix: str) -> None:
    bucket = s3.Bucket.from_bucket_name(stack, "Weights", "weights")
    with pytest.raises(ValueError, match="is not usable: give folders"):
        S3Prefix(bucket=bucket, prefix=prefix)


def test_fails_for_a_prefix_that_leaves_no_room_for_names(stack: Stack) -> None:
    bucket = s3.Bucket.from_bucket_name(stack, "Weights", "weights")
    with pytest.raises(ValueError, match="prefix has 901 characters; give at most 900"):
        S3Prefix(bucket=bucket, prefix="a" * 900)

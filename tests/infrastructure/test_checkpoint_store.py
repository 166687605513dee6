"""The checkpoint bucket alone: nobody reads it in clear, nothing valuable expires."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template

from cdk_blackwell import CheckpointStore


@pytest.fixture
def stack() -> Stack:
    return Stack(App(), "Stack")


def bucket(stack: Stack) -> dict[str, Any]:
    (found,) = Template.from_stack(stack).find_resources("AWS::S3::Bucket").values()
    assert isinstance(found, dict)
    return found


def rules(stack: Stack) -> list[dict[str, Any]]:
    found = bucket(stack)["Properties"]["LifecycleConfiguration"]["Rules"]
    assert isinstance(found, list)
    return found


def test_it_makes_its_own_key_and_keeps_both(stack: Stack) -> None:
    store = CheckpointStore(stack, "Store")
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::KMS::Key", 1)
    for kind in ("AWS::KMS::Key", "AWS::S3::Bucket"):
        template.has_resource(kind, {"DeletionPolicy": "RetainExceptOnCreate"})
    assert store.encryption_key is not None


def test_it_is_private_and_speaks_tls_only(stack: Stack) -> None:
    CheckpointStore(stack, "Store")
    properties = bucket(stack)["Properties"]
    assert all(properties["PublicAccessBlockConfiguration"].values())
    (policy,) = Template.from_stack(stack).find_resources("AWS::S3::BucketPolicy").values()
    denied = [
        statement["Condition"]
        for statement in policy["Properties"]["PolicyDocument"]["Statement"]
        if statement["Effect"] == "Deny"
    ]
    assert {"Bool": {"aws:SecureTransport": "false"}} in denied
    assert {"NumericLessThan": {"s3:TlsVersion": 1.2}} in denied


def test_parts_of_uploads_that_never_ended_are_removed_and_no_checkpoint_is(stack: Stack) -> None:
    CheckpointStore(stack, "Store")
    (rule,) = rules(stack)
    assert rule["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}
    # S3 judges by age alone: it would take the newest checkpoint of a run that stands still.
    assert not {"ExpirationInDays", "ExpirationDate", "Transitions"} & set(rule)


def test_a_versioned_one_does_not_keep_pruned_checkpoints_for_ever(stack: Stack) -> None:
    CheckpointStore(stack, "Store", versioned=True, noncurrent_days=3)
    assert bucket(stack)["Properties"]["VersioningConfiguration"] == {"Status": "Enabled"}
    _, expire = rules(stack)
    assert expire["NoncurrentVersionExpiration"] == {"NoncurrentDays": 3}
    assert "ExpirationInDays" not in expire


@pytest.mark.parametrize(
    ("props", "words"),
    [
        ({"noncurrent_days": 3}, "not versioned: set versioned"),
        ({"versioned": True, "noncurrent_days": -1}, "noncurrent_days -1 is not allowed"),
    ],
)
def test_fails_for_rules_that_do_nothing(stack: Stack, props: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        CheckpointStore(stack, "Store", **props)


def test_readers_reach_one_jobs_runs_only(stack: Stack) -> None:
    store = CheckpointStore.from_bucket(s3.Bucket.from_bucket_name(stack, "Runs", "runs"))
    reader = iam.Role(stack, "Reader", assumed_by=iam.AccountRootPrincipal())
    assert store.grant_read(reader, "job").success
    (policy,) = Template.from_stack(stack).find_resources("AWS::IAM::Policy").values()
    text = json.dumps(policy)
    assert ":s3:::runs/job/runs/*" in text
    assert ":s3:::runs/*" not in text

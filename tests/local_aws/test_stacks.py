"""Stacks: create, roll back, update, delete, exports."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cdk_blackwell.local.aws import LocalAws

BUCKET = {"Type": "AWS::S3::Bucket"}


def parameter(value: Any, **rest: Any) -> dict[str, Any]:
    return {
        "Type": "AWS::SSM::Parameter",
        "Properties": {"Type": "String", "Value": value},
        **rest,
    }


def test_outputs_and_references_are_real_values(aws: LocalAws, stacks: Any) -> None:
    stack = stacks.create(
        "outputs",
        {"Bucket": BUCKET, "Name": parameter({"Fn::GetAtt": ["Bucket", "Arn"]})},
        Outputs={"Name": {"Value": {"Ref": "Name"}}},
    )
    assert stack["StackStatus"] == "CREATE_COMPLETE"
    name = stack["Outputs"][0]["OutputValue"]
    stored = aws.client("ssm").get_parameter(Name=name)["Parameter"]["Value"]
    assert stored == f"arn:aws:s3:::{stacks.physical_id('outputs', 'Bucket')}"
    assert stacks.delete("outputs")["StackStatus"] == "DELETE_COMPLETE"
    buckets = [bucket["Name"] for bucket in aws.client("s3").list_buckets()["Buckets"]]
    assert not [bucket for bucket in buckets if bucket.startswith("outputs-")]


def test_an_unknown_type_fails_the_stack_by_name_and_rolls_back(aws: LocalAws, stacks: Any) -> None:
    stack = stacks.create(
        "unknown-type",
        {"Bucket": BUCKET, "Budget": {"Type": "AWS::Budgets::Budget", "DependsOn": "Bucket"}},
    )
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "AWS::Budgets::Budget" in stacks.reasons(stack["StackId"])[0]
    assert stacks.api.list_stack_resources(StackName="unknown-type")["StackResourceSummaries"] == []


def test_an_unknown_property_fails_instead_of_being_dropped(stacks: Any) -> None:
    stack = stacks.create(
        "unknown-property", {"Bucket": {**BUCKET, "Properties": {"Colour": "red"}}}
    )
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    assert "Colour" in stacks.reasons(stack["StackId"])[0]


def test_a_bucket_that_holds_objects_is_not_deleted(aws: LocalAws, stacks: Any) -> None:
    stacks.create("full", {"Bucket": BUCKET, "Other": parameter("x")})
    bucket = stacks.physical_id("full", "Bucket")
    aws.client("s3").put_object(Bucket=bucket, Key="kept", Body=b"1")
    stack = stacks.delete("full")
    assert stack["StackStatus"] == "DELETE_FAILED"
    assert "[Bucket]" in stack["StackStatusReason"]
    assert "not empty" in stacks.reasons(stack["StackId"])[0]
    aws.client("s3").delete_object(Bucket=bucket, Key="kept")
    assert stacks.delete("full")["StackStatus"] == "DELETE_COMPLETE"


def test_a_retained_resource_stays(aws: LocalAws, stacks: Any) -> None:
    stacks.create("retain", {"Bucket": {**BUCKET, "DeletionPolicy": "Retain"}})
    bucket = stacks.physical_id("retain", "Bucket")
    assert stacks.delete("retain")["StackStatus"] == "DELETE_COMPLETE"
    aws.client("s3").head_bucket(Bucket=bucket)
    aws.client("s3").delete_bucket(Bucket=bucket)


def test_retain_except_on_create_goes_with_a_failed_creation_only(
    aws: LocalAws, stacks: Any
) -> None:
    kept = {**BUCKET, "DeletionPolicy": "RetainExceptOnCreate"}
    bad = {"Type": "AWS::Budgets::Budget", "DependsOn": "Bucket"}
    stack = stacks.create("kept", {"Bucket": kept, "Bad": bad})
    assert stack["StackStatus"] == "ROLLBACK_COMPLETE"
    s3 = aws.client("s3")
    names = [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]
    assert not [name for name in names if name.startswith("kept-")]
    stacks.delete("kept")

    stacks.create("kept", {"Bucket": kept})
    bucket = stacks.physical_id("kept", "Bucket")
    assert stacks.delete("kept")["StackStatus"] == "DELETE_COMPLETE"
    s3.head_bucket(Bucket=bucket)
    s3.delete_bucket(Bucket=bucket)


def test_an_export_in_use_keeps_its_stack(stacks: Any) -> None:
    stacks.create(
        "producer",
        {"Bucket": BUCKET},
        Outputs={"Name": {"Value": {"Ref": "Bucket"}, "Export": {"Name": "shared"}}},
    )
    stacks.create("consumer", {"Name": parameter({"Fn::ImportValue": "shared"})})
    stack = stacks.delete("producer")
    assert stack["StackStatus"] == "DELETE_FAILED"
    assert "in use by consumer" in stack["StackStatusReason"]
    assert stacks.delete("consumer")["StackStatus"] == "DELETE_COMPLETE"
    assert stacks.delete("producer")["StackStatus"] == "DELETE_COMPLETE"


def test_an_update_changes_adds_and_removes(aws: LocalAws, stacks: Any) -> None:
    stacks.create("update", {"Kept": parameter("1"), "Gone": parameter("x")})
    kept, gone = stacks.physical_id("update", "Kept"), stacks.physical_id("update", "Gone")
    stack = stacks.update("update", {"Kept": parameter("2"), "New": parameter("y")})
    assert stack["StackStatus"] == "UPDATE_COMPLETE"
    assert stacks.physical_id("update", "Kept") == kept
    ssm = aws.client("ssm")
    assert ssm.get_parameter(Name=kept)["Parameter"]["Value"] == "2"
    with pytest.raises(ClientError, match="ParameterNotFound"):
        ssm.get_parameter(Name=gone)
    stacks.delete("update")


def test_a_failing_update_puts_changed_resources_back(aws: LocalAws, stacks: Any) -> None:
    stacks.create("update-back", {"Kept": parameter("1")})
    kept = stacks.physical_id("update-back", "Kept")
    bad = {"Type": "AWS::Budgets::Budget", "DependsOn": "Kept"}
    stack = stacks.update("update-back", {"Kept": parameter("2"), "Bad": bad})
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert aws.client("ssm").get_parameter(Name=kept)["Parameter"]["Value"] == "1"
    stacks.delete("update-back")


def test_a_type_without_update_says_what_to_do(stacks: Any) -> None:
    vpc = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.0.0.0/16"}}
    other = {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.1.0.0/16"}}
    stacks.create("update-vpc", {"Vpc": vpc})
    stack = stacks.update("update-vpc", {"Vpc": other})
    assert stack["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    assert "cannot update AWS::EC2::VPC" in stacks.reasons(stack["StackId"])[0]
    stacks.delete("update-vpc")


def test_change_sets_of_two_stacks_with_one_name_do_not_meet(stacks: Any) -> None:
    api = stacks.api
    for name in ("twin-a", "twin-b"):
        api.create_change_set(
            StackName=name,
            ChangeSetName="same",
            ChangeSetType="CREATE",
            TemplateBody=json.dumps({"Resources": {"P": parameter(name)}}),
        )
    api.delete_change_set(StackName="twin-b", ChangeSetName="same")
    described = api.describe_change_set(StackName="twin-a", ChangeSetName="same")
    assert described["StackName"] == "twin-a"
    assert described["Changes"][0]["ResourceChange"]["Action"] == "Add"
    with pytest.raises(api.exceptions.ChangeSetNotFoundException):
        api.describe_change_set(StackName="twin-b", ChangeSetName="same")
    api.execute_change_set(StackName="twin-a", ChangeSetName="same")
    assert stacks.wait("twin-a")["StackStatus"] == "CREATE_COMPLETE"
    stacks.delete("twin-a")


def test_a_change_set_without_changes_says_so(stacks: Any) -> None:
    template = json.dumps({"Resources": {"P": parameter("1")}})
    stacks.create("same", {"P": parameter("1")})
    stacks.api.create_change_set(
        StackName="same", ChangeSetName="none", ChangeSetType="UPDATE", TemplateBody=template
    )
    described = stacks.api.describe_change_set(StackName="same", ChangeSetName="none")
    assert described["Status"] == "FAILED"
    assert "didn't contain changes" in described["StatusReason"]
    stacks.delete("same")

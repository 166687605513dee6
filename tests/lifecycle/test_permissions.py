"""The permission table names exactly what the handler calls: not less, and not more."""

from __future__ import annotations

import string

import pytest

from cdk_blackwell.lifecycle.handler.permissions import PERMISSIONS
from tests.lifecycle.fakes import GROUP, error
from tests.lifecycle.test_training_plan import under_plan
from tests.lifecycle.world import PROGRESS, World

ACTIONS = {
    "create_training_job": {"sagemaker:CreateTrainingJob", "sagemaker:AddTags", "iam:PassRole"},
    "describe_training_job": {"sagemaker:DescribeTrainingJob"},
    "stop_training_job": {"sagemaker:StopTrainingJob"},
    "list_tags": {"sagemaker:ListTags"},
    "get_item": {"dynamodb:GetItem"},
    "update_item": {"dynamodb:UpdateItem"},
    "delete_item": {"dynamodb:DeleteItem"},
    "query": {"dynamodb:Query"},
    # Members of a transaction are authorised as what they do.
    "transact_write_items": {
        "dynamodb:PutItem",
        "dynamodb:UpdateItem",
        "dynamodb:ConditionCheckItem",
    },
    "head_object": {"s3:GetObject", "s3:ListBucket"},
    "get_object": {"s3:GetObject", "s3:ListBucket", "kms:Decrypt"},
    "put_object": {"s3:PutObject", "kms:GenerateDataKey"},
    "copy_object": {"s3:GetObject", "s3:PutObject", "kms:Decrypt", "kms:GenerateDataKey"},
    "delete_object": {"s3:DeleteObject"},
    "describe_training_plan": {"sagemaker:DescribeTrainingPlan"},
    "put_events": {"events:PutEvents"},
    "publish": {"sns:Publish", "kms:GenerateDataKey", "kms:Decrypt"},
    "invoke": {"lambda:InvokeFunction"},
    "describe_security_groups": {"ec2:DescribeSecurityGroups"},
    "describe_network_interfaces": {"ec2:DescribeNetworkInterfaces"},
    "get_metric_data": {"cloudwatch:GetMetricData"},
    "answer": set(),
}
"""IAM actions by operation."""


@pytest.mark.usefixtures("coarse")
def test_every_call_of_a_long_life_is_permitted_and_every_permission_is_used(
    world: World,
) -> None:
    world.gate.fail("create_training_job", error("ValidationException", "no"))
    world.cloudformation("Create", run_id="refused")
    world.gate.fail("create_training_job", error("InternalFailure", status=500), when="after")
    world.cloudformation("Update", run_id="a", job=under_plan(world))
    world.progress(100, stepped_at=PROGRESS.time)
    world.sweep()
    world.fails(world.name("a"), "InternalServerError", step=100)
    world.sweep()
    world.ask("status")
    world.ask("stop")
    world.ec2.interfaces = {"eni": (GROUP, world.time.now() + 1000)}
    world.cloudformation("Delete")

    called = set().union(*(ACTIONS[operation] for operation in world.gate.calls))
    granted = {action for permission in PERMISSIONS for action in permission.actions}
    assert called == granted


def test_only_what_aws_does_not_limit_to_a_resource_is_allowed_without_one() -> None:
    wild = {permission.kind for permission in PERMISSIONS if "*" in permission.resources}
    assert wild == {"network", "utilization"}


def test_resources_are_templates_with_known_names() -> None:
    names = {
        field
        for permission in PERMISSIONS
        for resource in permission.resources
        for _, field, _, _ in string.Formatter().parse(resource)
        if field
    }
    assert names == {
        "partition",
        "region",
        "account",
        "job",
        "job_lower_case",
        "training_plan_arn",
        "training_role_arn",
        "table_arn",
        "bundle_bucket",
        "bundle_key",
        "checkpoint_bucket",
        "dataset_bucket",
        "dataset_manifest_key",
        "storage_key_arn",
        "topic_arn",
        "topic_key_arn",
        "function_arn",
    }

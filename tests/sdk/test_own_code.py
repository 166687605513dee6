"""A job's request becomes the SDK's objects, member by member."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import boto3
import pytest
from moto import mock_aws

pytest.importorskip("sagemaker.train", reason="the extra [sdk] is not installed")

from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.sdk.own_code import OwnCode
from cdk_blackwell.sdk.sessions import ROLE_CHECK, read_logs_with, role_as_it_is
from tests.lifecycle.fakes import REGION
from tests.lifecycle.world import definition

PLAN = "arn:aws:sagemaker:us-west-2:111122223333:training-plan/p"
FSX = {
    "FileSystemId": "fs-1",
    "FileSystemType": "FSxLustre",
    "FileSystemAccessMode": "ro",
    "DirectoryPath": "/mount/dataset/tokens",
}
REQUEST: dict[str, Any] = {
    "RoleArn": "arn:aws:iam::111122223333:role/job",
    "ResourceConfig": {
        "InstanceType": "ml.p6-b200.48xlarge",
        "InstanceCount": 4,
        "VolumeSizeInGB": 500,
        "TrainingPlanArn": PLAN,
    },
    "VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]},
    "StoppingCondition": {"MaxRuntimeInSeconds": 3600, "MaxPendingTimeInSeconds": 43200},
    "Environment": {"FI_PROVIDER": "efa", "CDKB_RUN_ID": "{run_id}", "TEAM": "speech"},
    "InputDataConfig": [
        {"ChannelName": name, "DataSource": {"FileSystemDataSource": FSX}}
        for name in ("code", "config", "dataset", "checkpoints")
    ],
}


@pytest.fixture
def own_code() -> OwnCode:
    made: JobDefinition = definition()
    return OwnCode(
        definition=replace(made, request={**made.request, **REQUEST}),
        boto_session=boto3.session.Session(region_name=REGION),
    )


def test_instances_and_training_plan_are_the_job_s(own_code: OwnCode) -> None:
    compute = own_code.compute
    assert (compute.instance_type, compute.instance_count) == ("ml.p6-b200.48xlarge", 4)
    assert compute.training_plan_arn == PLAN
    assert compute.keep_alive_period_in_seconds is None


def test_network_role_and_limits_are_the_job_s(own_code: OwnCode) -> None:
    assert own_code.networking.subnets == ["subnet-1"]
    assert own_code.networking.security_group_ids == ["sg-1"]
    assert own_code.role == REQUEST["RoleArn"]
    assert own_code.stopping_condition.max_runtime_in_seconds == 3600


def test_data_is_given_but_not_what_belongs_to_a_run_of_the_controller(own_code: OwnCode) -> None:
    (dataset,) = own_code.input_data
    assert dataset.channel_name == "dataset"
    assert dataset.data_source.directory_path == "/mount/dataset/tokens"
    assert dataset.data_source.file_system_access_mode == "ro"
    assert own_code.environment == {"FI_PROVIDER": "efa", "TEAM": "speech"}


def test_results_lie_where_the_role_may_write_beside_the_runs(own_code: OwnCode) -> None:
    output = own_code.output_data_config
    made = own_code.definition
    assert (
        output.s3_output_path == f"s3://{made.checkpoint_bucket}/{made.job}/runs/_own-code/output/"
    )


@mock_aws
def test_logs_are_read_in_the_job_s_region_not_in_the_default_one() -> None:
    from sagemaker.core.utils.logs import CloudWatchLogsClient

    for region in ("us-west-2", "eu-west-1"):
        read_logs_with(boto3.session.Session(region_name=region))
        assert CloudWatchLogsClient().client.meta.region_name == region


@pytest.mark.parametrize("before", [None, "true"])
def test_the_role_check_is_left_out_for_a_moment_only(
    monkeypatch: pytest.MonkeyPatch, before: str | None
) -> None:
    monkeypatch.delenv(ROLE_CHECK, raising=False)
    if before:
        monkeypatch.setenv(ROLE_CHECK, before)
    with role_as_it_is():
        assert os.environ[ROLE_CHECK] == "false"
    assert os.environ.get(ROLE_CHECK) == before

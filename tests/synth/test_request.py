"""The request as SageMaker will see it: tokens resolved, rendered by the controller's own code,
and held against SageMaker's own model."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from cdk_blackwell.compliance.service_model import check_training_request
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.request import render_request
from cdk_blackwell.planning.run_spec import RunSpec

STACK = "arn:aws:cloudformation:us-west-2:123456789012:stack/SmallModelStack/0a1b2c3d"
RESOLVED = {
    "LustreMountName": "abcdefgh",
    "RefFoundationFileSystem": "fs-0123456789abcdef0",
    "RefFoundationNetworkSubnet": "subnet-0123456789abcdef0",
    "RefFoundationCheckpointStoreBucket": "checkpoints-bucket",
    "RefFoundationDatasetBucket": "dataset-bucket",
    "StorageKey": "arn:aws:kms:us-west-2:123456789012:key/11111111-2222-3333-4444-555555555555",
    "SecurityGroup": "sg-0123456789abcdef0",
    "TrainingRole": "arn:aws:iam::123456789012:role/SmallModelStack-TrainTrainingRole-1",
    "AWS::Region": "us-west-2",
    "AWS::URLSuffix": "amazonaws.com",
    "AWS::AccountId": "123456789012",
    "AWS::Partition": "aws",
    "cdk-hnb659fds-assets": "cdk-hnb659fds-assets-123456789012-us-west-2",
}
"""What CloudFormation would give, by a part of the reference; the first match counts."""


def resolve(value: Any) -> str:
    """Join the parts of the custom resource's Definition, as CloudFormation does."""
    if isinstance(value, str):
        return value
    if "Fn::Join" in value:
        return "".join(resolve(part) for part in value["Fn::Join"][1])
    text = json.dumps(value)
    return next(resolved for part, resolved in RESOLVED.items() if part in text)


@pytest.fixture(scope="module")
def definition(demo: Any) -> JobDefinition:
    (run,) = demo.job.find_resources("Custom::CdkBlackwellRun").values()
    return JobDefinition.from_json(resolve(run["Properties"]["Definition"]))


@pytest.fixture(scope="module")
def request_(definition: JobDefinition) -> dict[str, Any]:
    return render_request(definition, stack_id=STACK, run_id="demo-1", attempt=1)


def test_the_request_keeps_every_pattern_length_and_enum_of_sagemaker(
    request_: dict[str, Any],
) -> None:
    assert check_training_request(request_) == []


def test_the_default_stack_renders_too(default: Any) -> None:
    (run,) = default.job.find_resources("Custom::CdkBlackwellRun").values()
    definition = JobDefinition.from_json(resolve(run["Properties"]["Definition"]))
    request = render_request(definition, stack_id=STACK, run_id="2027-01-15-a", attempt=999)
    assert check_training_request(request) == []
    assert len(request["TrainingJobName"]) <= 63


def test_the_job_runs_on_one_b200_instance_in_its_network(request_: dict[str, Any]) -> None:
    resources = request_["ResourceConfig"]
    assert resources["InstanceType"] == "ml.p6-b200.48xlarge"
    assert resources["InstanceCount"] == 1
    # Refused by SageMaker on types with local NVMe.
    assert "VolumeKmsKeyId" not in resources
    assert request_["VpcConfig"] == {
        "SecurityGroupIds": ["sg-0123456789abcdef0"],
        "Subnets": ["subnet-0123456789abcdef0"],
    }


def test_code_config_and_dataset_come_from_where_the_run_was_frozen(
    request_: dict[str, Any],
) -> None:
    channels = {c["ChannelName"]: c["DataSource"] for c in request_["InputDataConfig"]}
    run = "s3://checkpoints-bucket/SmallModelStack-Train/runs/demo-1"
    assert channels["code"]["S3DataSource"]["S3Uri"] == f"{run}/bundle.tar.gz"
    assert channels["config"]["S3DataSource"]["S3Uri"] == f"{run}/run.json"
    assert channels["dataset"]["FileSystemDataSource"] == {
        "FileSystemId": "fs-0123456789abcdef0",
        "FileSystemType": "FSxLustre",
        "FileSystemAccessMode": "ro",
        "DirectoryPath": "/abcdefgh/dataset/tokens",
    }
    assert request_["CheckpointConfig"] == {
        "S3Uri": f"{run}/checkpoints/",
        "LocalPath": "/opt/ml/checkpoints",
    }
    assert request_["OutputDataConfig"]["S3OutputPath"] == f"{run}/export/"
    assert request_["OutputDataConfig"]["CompressionType"] == "NONE"


def test_time_is_bounded_and_sagemaker_retries_its_own_errors(request_: dict[str, Any]) -> None:
    assert request_["StoppingCondition"] == {
        "MaxRuntimeInSeconds": 86_400,
        "MaxPendingTimeInSeconds": 43_200,
    }
    assert request_["RetryStrategy"] == {"MaximumRetryAttempts": 3}


def test_the_environment_is_what_b200_needs_and_forces_no_nccl_choice(
    request_: dict[str, Any],
) -> None:
    environment = request_["Environment"]
    assert environment["FI_PROVIDER"] == "efa"
    assert environment["FI_EFA_USE_HUGE_PAGE"] == "0"
    assert environment["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert environment["CDKB_ATTEMPT"] == "1"
    assert "CDKB_ALLOW_TCP" not in environment
    assert environment["AWS_DEFAULT_REGION"] == "us-west-2"
    assert not [name for name in environment if name.startswith("NCCL_")]


def test_run_json_is_the_contexts_wish(definition: JobDefinition) -> None:
    spec = RunSpec.from_dict({**definition.run, "run_id": "demo-1"})
    assert spec.train_steps == 200
    assert spec.global_batch_sequences == 16
    assert spec.recipe.precision == "fp32"
    assert spec.recipe.optimizer.peak_learning_rate == 3e-3
    assert spec.recipe.optimizer.warmup_steps == 20
    assert spec.checkpoint.interval_seconds == 20
    assert spec.limits.in_cluster_restarts == 0
    assert spec.limits.hang_seconds == 120
    assert spec.limits.log_interval_steps == 5
    assert spec.limits.validation_interval_steps == 100
    assert definition.dataset_manifest.key == "tokens/manifest.json"


@pytest.mark.parametrize(
    ("path", "value", "where", "allowed"),
    [
        (("ResourceConfig", "InstanceType"), "ml.p6-b200", "ResourceConfig.InstanceType", "one of"),
        (("StoppingCondition", "MaxPendingTimeInSeconds"), 60, "MaxPendingTime", "1800 to 2419200"),
        (("TrainingJobName",), "a_b", "TrainingJobName", "text matching"),
        (("RoleArn",), "role", "RoleArn", "20 to 2048 characters"),
        (("RetryStrategy", "MaximumRetryAttempts"), 31, "MaximumRetryAttempts", "1 to 30"),
        (("ResourceConfig", "InstanceCount"), "1", "InstanceCount", "type integer"),
        (("ResourceConfig", "Instances"), 1, "ResourceConfig.Instances", "one of"),
        (("Environment", "not-a-name"), "x", "key 'not-a-name'", "text matching"),
    ],
)
def test_a_request_that_breaks_the_model_is_told_where_and_what_is_allowed(
    request_: dict[str, Any], path: tuple[str, ...], value: Any, where: str, allowed: str
) -> None:
    broken = copy.deepcopy(request_)
    target = broken
    for name in path[:-1]:
        target = target[name]
    target[path[-1]] = value
    text = "; ".join(map(str, check_training_request(broken)))
    assert where in text
    assert allowed in text


def test_a_missing_required_member_is_named(request_: dict[str, Any]) -> None:
    broken = {key: value for key, value in request_.items() if key != "RoleArn"}
    (violation,) = check_training_request(broken)
    assert (violation.where, violation.allowed) == ("RoleArn", "a value (it is required)")


def test_unresolved_values_are_never_judged(request_: dict[str, Any]) -> None:
    broken = {**request_, "RoleArn": "${Token[TOKEN.1]}"}
    assert check_training_request(broken)
    assert (
        check_training_request(
            broken, is_unresolved=lambda value: isinstance(value, str) and "${Token[" in value
        )
        == []
    )

"""The operations on training jobs answer as SageMaker's do."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local_aws.sagemaker.embedded import BUCKET, Sagemaker, request

FULL_REQUEST_MEMBERS: dict[str, Any] = {
    "HyperParameters": {"sequence_length": "1024"},
    "VpcConfig": {"SecurityGroupIds": ["sg-0123456789abcdef0"], "Subnets": ["subnet-01234567"]},
    "EnableNetworkIsolation": False,
    "EnableInterContainerTrafficEncryption": True,
    "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints/"},
    "Environment": {"CDKB_RUN_ID": "a"},
    "RetryStrategy": {"MaximumRetryAttempts": 3},
    "RemoteDebugConfig": {"EnableRemoteDebug": False},
    "InfraCheckConfig": {"EnableInfraCheck": True},
    "ProfilerConfig": {"DisableProfiler": True},
}


def refusal(sagemaker: Sagemaker, body: dict[str, Any]) -> tuple[str, str]:
    """Code and message for a request sent without botocore's own checks."""
    call = urllib.request.Request(
        sagemaker.endpoint_url,
        data=json.dumps(body).encode(),
        headers={
            "X-Amz-Target": "SageMaker.CreateTrainingJob",
            "Content-Type": "application/x-amz-json-1.1",
            "Authorization": "AWS4-HMAC-SHA256 Credential=testing/20270101/us-west-2/sagemaker/"
            "aws4_request, SignedHeaders=host, Signature=0",
        },
    )
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(call)
    answer = json.loads(caught.value.read())
    caught.value.close()
    return answer["__type"].split("#")[-1], answer.get("message") or answer.get("Message")


def test_request_is_kept_and_described_with_all_its_members(sagemaker: Sagemaker) -> None:
    sent = request("true", **FULL_REQUEST_MEMBERS)
    sagemaker.api.create_training_job(**sent)
    described = sagemaker.wait()
    assert json.loads((sagemaker.folder("job") / "request.json").read_text()) == sent
    assert {name: described[name] for name in sent} == sent
    assert described["TrainingJobArn"] == (
        "arn:aws:sagemaker:us-west-2:123456789012:training-job/job"
    )


def test_request_file_holds_the_body_byte_for_byte(sagemaker: Sagemaker) -> None:
    client = sagemaker.api
    bodies: list[bytes] = []
    client.meta.events.register(
        "before-send.sagemaker.CreateTrainingJob",
        lambda request, **_: bodies.append(request.body),
    )
    client.create_training_job(**request("echo é"))
    assert (sagemaker.folder("job") / "request.json").read_bytes() == bodies[0]
    sagemaker.wait()


def test_name_can_be_used_once_until_the_job_is_deleted(sagemaker: Sagemaker) -> None:
    sagemaker.run("true")
    with pytest.raises(ClientError) as caught:
        sagemaker.start("true")
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"
    sagemaker.api.delete_training_job(TrainingJobName="job")
    sagemaker.run("echo again")
    kept = sorted(path.name for path in sagemaker.folder("job").parent.iterdir())
    assert kept == ["job", "job.1"]


def test_running_job_is_not_deleted(sagemaker: Sagemaker) -> None:
    sagemaker.start("sleep 100")
    with pytest.raises(ClientError) as caught:
        sagemaker.api.delete_training_job(TrainingJobName="job")
    assert caught.value.response["Error"]["Code"] == "ResourceInUse"


@pytest.mark.parametrize("operation", ["describe", "stop", "delete"])
def test_unknown_job(sagemaker: Sagemaker, operation: str) -> None:
    call = getattr(sagemaker.api, f"{operation}_training_job")
    with pytest.raises(ClientError) as caught:
        call(TrainingJobName="nobody")
    error = caught.value.response["Error"]
    assert (error["Code"], error["Message"]) == (
        "ValidationException",
        "Requested resource not found.",
    )


def test_finished_job_cannot_be_stopped(sagemaker: Sagemaker) -> None:
    sagemaker.run("true")
    with pytest.raises(ClientError, match="is in status Completed"):
        sagemaker.api.stop_training_job(TrainingJobName="job")


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"TrainingJobName": "under_score"}, "TrainingJobName"),
        ({"TrainingJobName": "x" * 64}, "64 characters"),
        ({"RoleArn": None}, "RoleArn"),
        ({"Environment": {"KEY": "v" * 513}}, "Environment"),
        ({"Unknown": 1}, "Unknown"),
        (
            {"ResourceConfig": {"InstanceType": "ml.p6-b999.48xlarge", "InstanceCount": 1}},
            "ResourceConfig.InstanceType",
        ),
        (
            {
                "ResourceConfig": {
                    "InstanceType": "ml.p6-b200.48xlarge",
                    "InstanceCount": 1,
                    "VolumeKmsKeyId": "key",
                }
            },
            "VolumeKmsKeyId is not supported for ml.p6-b200.48xlarge",
        ),
        ({"EnableManagedSpotTraining": True}, "MaxWaitTimeInSeconds"),
    ],
)
def test_bad_request_is_refused(
    sagemaker: Sagemaker, change: dict[str, Any], expected: str
) -> None:
    body = {key: value for key, value in {**request("true"), **change}.items() if value is not None}
    code, message = refusal(sagemaker, body)
    assert code == "ValidationException"
    assert expected in message
    assert sagemaker.api.list_training_jobs()["TrainingJobSummaries"] == []


def test_more_than_one_instance_is_over_the_limit(sagemaker: Sagemaker) -> None:
    two = {"InstanceType": "ml.p6-b200.48xlarge", "InstanceCount": 2}
    with pytest.raises(ClientError, match=r"runs 1 instance .* asks for 2") as caught:
        sagemaker.start("true", ResourceConfig=two)
    assert caught.value.response["Error"]["Code"] == "ResourceLimitExceeded"


def test_tags_are_listed_and_a_known_key_gets_the_new_value(sagemaker: Sagemaker) -> None:
    sagemaker.run("true", Tags=[{"Key": "a", "Value": "1"}])
    arn = sagemaker.describe()["TrainingJobArn"]
    sagemaker.api.add_tags(
        ResourceArn=arn, Tags=[{"Key": "a", "Value": "2"}, {"Key": "b", "Value": "3"}]
    )
    assert sagemaker.api.list_tags(ResourceArn=arn)["Tags"] == [
        {"Key": "a", "Value": "2"},
        {"Key": "b", "Value": "3"},
    ]
    with pytest.raises(ClientError, match="Requested resource not found"):
        sagemaker.api.list_tags(ResourceArn=arn + "x")


def test_jobs_are_listed_by_name_status_and_page(sagemaker: Sagemaker) -> None:
    for name in ("run-a-1", "run-a-2", "run-b-1"):
        sagemaker.run("exit 1" if name == "run-a-2" else "true", name=name)

    def names(**query: Any) -> list[str]:
        pages = sagemaker.api.get_paginator("list_training_jobs").paginate(
            PaginationConfig={"PageSize": 2}, **query
        )
        return [job["TrainingJobName"] for page in pages for job in page["TrainingJobSummaries"]]

    assert names() == ["run-a-1", "run-a-2", "run-b-1"]
    assert names(NameContains="run-a") == ["run-a-1", "run-a-2"]
    assert names(StatusEquals="Failed") == ["run-a-2"]
    assert names(SortBy="Name", SortOrder="Descending") == ["run-b-1", "run-a-2", "run-a-1"]

"""Every check of ``doctor`` passes and fails for the reason that it names."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest
from botocore.response import StreamingBody
from botocore.stub import Stubber

from cdk_blackwell.cli.doctor import account, capacity, network, storage
from cdk_blackwell.cli.doctor.checks import CHECKS, examine
from cdk_blackwell.cli.doctor.finding import Check, Subject
from cdk_blackwell.cli.errors import CheckFailedError
from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from tests.cli.deployment import OUTPUT, STACK, Deployment
from tests.lifecycle import fakes
from tests.lifecycle.world import definition

PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/block"
Answer = tuple[str, str, Any]
"""Service, operation, and the response; a text is an error's code."""


class StubbedAws(Aws):
    """Answers in order, checked against botocore's own models."""

    def client(self, service: str) -> Any:
        return self.session[service]


def stubbed(*answers: Answer, request: dict[str, Any] | None = None) -> Subject:
    clients: dict[str, Any] = {}
    for service, operation, response in answers:
        if service not in clients:
            session: Any = boto3.session.Session(
                aws_access_key_id="testing",
                aws_secret_access_key="testing",
                region_name=fakes.REGION,
            )
            clients[service] = session.client(service)
            clients[f"stub {service}"] = Stubber(clients[service])
            clients[f"stub {service}"].activate()
        stub = clients[f"stub {service}"]
        if isinstance(response, str):
            stub.add_client_error(operation, service_error_code=response)
        else:
            stub.add_response(operation, response)
    job = definition()
    return Subject(
        aws=StubbedAws(session=clients, region=fakes.REGION),
        job=DeployedJob(stack=STACK, stack_id=fakes.STACK, output=OUTPUT),
        definition=definition(request={**job.request, **(request or {})}),
    )


def subnet(zone: str = "us-west-2b", free: int = 100) -> Answer:
    found = {"SubnetId": "subnet-1", "AvailabilityZone": zone, "AvailableIpAddressCount": free}
    return ("ec2", "describe_subnets", {"Subnets": [found]})


def offered(*zones: str) -> Answer:
    rows = [{"InstanceType": "p6-b200.48xlarge", "Location": zone} for zone in zones]
    return ("ec2", "describe_instance_type_offerings", {"InstanceTypeOfferings": rows})


def allowed(value: float, usage: str = "training job usage") -> Answer:
    rows = [{"QuotaName": f"ml.p6-b200.48xlarge for {usage}", "Value": value}]
    return ("service-quotas", "list_service_quotas", {"Quotas": rows})


def identity(number: str) -> Answer:
    said = {"UserId": "AIDAEXAMPLEEXAMPLE", "Account": number, "Arn": f"arn:aws:iam::{number}:x"}
    return ("sts", "get_caller_identity", said)


def parameter(value: str) -> Answer:
    return ("ssm", "get_parameter", {"Parameter": {"Value": value}})


def plan(count: int = 4, zone: str = "us-west-2b", status: str = "Active", days: int = 9) -> Answer:
    now = datetime.now(UTC)
    return (
        "sagemaker",
        "describe_training_plan",
        {
            "TrainingPlanArn": PLAN,
            "TrainingPlanName": "block",
            "Status": status,
            "TotalInstanceCount": count,
            "EndTime": now + timedelta(days=days),
            "ReservedCapacitySummaries": [
                {
                    "ReservedCapacityArn": f"{PLAN}/reserved",
                    "InstanceType": "ml.p6-b200.48xlarge",
                    "TotalInstanceCount": count,
                    "Status": "Active",
                    "AvailabilityZone": zone,
                }
            ],
        },
    )


def lustre(state: str = "AVAILABLE") -> Answer:
    found = {
        "FileSystemId": "fs-0123456789abcdef0",
        "Lifecycle": state,
        "SubnetIds": ["subnet-0123456789abcdef0"],
    }
    return ("fsx", "describe_file_systems", {"FileSystems": [found]})


def text(body: str) -> dict[str, Any]:
    return {"Body": StreamingBody(io.BytesIO(body.encode()), len(body))}


def manifest(value: Any) -> Answer:
    return ("s3", "get_object", text(json.dumps(value)))


def public(value: bool) -> Answer:
    return ("s3", "get_bucket_policy_status", {"PolicyStatus": {"IsPublic": value}})


def encrypted(key: str) -> Answer:
    default = {"SSEAlgorithm": "aws:kms", "KMSMasterKeyID": key}
    rules = [{"ApplyServerSideEncryptionByDefault": default}]
    return ("s3", "get_bucket_encryption", {"ServerSideEncryptionConfiguration": {"Rules": rules}})


def key(state: str) -> Answer:
    return ("kms", "describe_key", {"KeyMetadata": {"KeyId": "k", "KeyState": state}})


RESOURCES = {"InstanceType": "ml.p6-b200.48xlarge", "InstanceCount": 2, "VolumeSizeInGB": 500}
BY_PLAN = {"ResourceConfig": {**RESOURCES, "TrainingPlanArn": PLAN}}
TWO = {"ResourceConfig": RESOURCES}
SPOT = {"EnableManagedSpotTraining": True}
FILES = {
    "InputDataConfig": [
        {
            "ChannelName": "dataset",
            "DataSource": {
                "FileSystemDataSource": {
                    "FileSystemId": "fs-0123456789abcdef0",
                    "FileSystemType": "FSxLustre",
                    "DirectoryPath": "/x",
                }
            },
        }
    ]
}
URI = "763104351884.dkr.ecr.us-west-2.amazonaws.com/pytorch:2.13"
IMAGE = {"AlgorithmSpecification": {"TrainingImage": URI, "TrainingInputMode": "File"}}
SHARDS = {"splits": {"train": [{"file": "train-0.bin"}]}}
IN_S3: Answer = ("s3", "head_object", {})


@pytest.mark.parametrize(
    ("check", "answers", "request_", "verdict", "words"),
    [
        (account.credentials, [identity("123456789012")], {}, "pass", "account 123456789012"),
        (account.credentials, [identity("210987654321")], {}, "fail", "stack lies in 123456789012"),
        (account.bootstrap, [parameter("21")], {}, "pass", "version 21"),
        (account.bootstrap, [parameter("5")], {}, "fail", "older than 6"),
        (
            account.bootstrap,
            [("ssm", "get_parameter", "ParameterNotFound")],
            {},
            "fail",
            "not boot",
        ),
        (capacity.quota, [allowed(2)], TWO, "pass", "2 allowed, 2 needed"),
        (capacity.quota, [allowed(1)], TWO, "fail", "1 allowed, 2 needed"),
        (capacity.quota, [allowed(8)], SPOT, "warn", "for spot training job usage' is listed"),
        (capacity.quota, [allowed(8, "spot training job usage")], SPOT, "pass", "8 allowed"),
        (capacity.quota, [], BY_PLAN, "pass", "no quota of its own"),
        (capacity.zone, [subnet(), offered("us-west-2b")], {}, "pass", "offered in us-west-2b"),
        (capacity.zone, [subnet(), offered("us-west-2c")], {}, "warn", "it does in us-west-2c"),
        (capacity.training_plan, [], {}, "pass", "none"),
        (capacity.training_plan, [plan(), subnet()], BY_PLAN, "pass", "Active, 4 instances"),
        (capacity.training_plan, [plan(1), subnet()], BY_PLAN, "fail", "1 instances, 2 needed"),
        (capacity.training_plan, [plan(zone="us-west-2d"), subnet()], BY_PLAN, "fail", "west-2d"),
        (capacity.training_plan, [plan(status="Expired")], BY_PLAN, "fail", "is Expired"),
        (capacity.training_plan, [plan(days=-1)], BY_PLAN, "fail", "ended at"),
        (network.addresses, [subnet(free=4)], TWO, "pass", "4 free addresses, 4 needed"),
        (network.addresses, [subnet(free=3)], TWO, "fail", "3 free addresses, 4 needed"),
        (network.file_system, [], {}, "pass", "mounts none"),
        (network.file_system, [subnet(), lustre(), subnet()], FILES, "pass", "available"),
        (network.file_system, [subnet(), lustre("CREATING")], FILES, "fail", "is CREATING"),
        (network.file_system, [subnet(), lustre(), subnet("us-west-2a")], FILES, "fail", "west-2a"),
        (storage.image, [("ecr", "batch_get_image", {"images": [{}]})], IMAGE, "pass", "2.13"),
        (storage.image, [("ecr", "batch_get_image", {"images": []})], IMAGE, "fail", "no such im"),
        (storage.image, [], {}, "warn", "not in ECR"),
        (storage.dataset, [manifest(SHARDS), IN_S3], {}, "pass", "with 1 shards"),
        (storage.dataset, [manifest({"mixture": [{}]})], {}, "pass", "a mixture"),
        (storage.dataset, [("s3", "get_object", "NoSuchKey")], {}, "fail", "does not exist"),
        (storage.dataset, [manifest({})], {}, "fail", "is not a manifest"),
        (storage.dataset, [manifest(SHARDS), ("s3", "head_object", "404")], {}, "fail", "-0.bin"),
        (storage.bucket_policies, [public(False), public(False)], {}, "pass", "not public"),
        (storage.bucket_policies, [public(False), public(True)], {}, "fail", "dataset is public"),
        (
            storage.bucket_policies,
            [("s3", "get_bucket_policy_status", "NoSuchBucketPolicy")],
            {},
            "warn",
            "no policy",
        ),
        (storage.keys, [encrypted("k"), encrypted("k"), key("Enabled")], {}, "pass", "1 customer"),
        (storage.keys, [encrypted("k"), encrypted("k"), key("Disabled")], {}, "fail", "Disabled"),
    ],
)
def test_a_check_finds_what_is_so(
    check: Check, answers: list[Answer], request_: dict[str, Any], verdict: str, words: str
) -> None:
    finding = check(stubbed(*answers, request=request_))
    assert (finding.verdict, words in finding.text) == (verdict, True), finding
    assert bool(finding.fix) == (verdict != "pass")


def test_what_may_not_be_seen_is_a_warning_of_that_check(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = stubbed(("sts", "get_caller_identity", "AccessDenied"))
    monkeypatch.setattr(
        "cdk_blackwell.cli.doctor.checks.CHECKS", {"credentials": account.credentials}
    )
    (result,) = examine(subject)
    assert (result.check, result.finding.verdict) == ("credentials", "warn")
    assert "no permission for GetCallerIdentity" in result.finding.text


def test_what_is_not_there_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    subject = stubbed(("ec2", "describe_subnets", "InvalidSubnetID.NotFound"))
    monkeypatch.setattr("cdk_blackwell.cli.doctor.checks.CHECKS", {"zone": capacity.zone})
    (result,) = examine(subject)
    assert result.finding.verdict == "fail"
    assert "InvalidSubnetID.NotFound" in result.finding.text


@pytest.fixture
def examined(deployment: Deployment) -> Deployment:
    """moto knows no quotas of SageMaker."""
    rows = [allowed(8)] * 2
    deployment.clients["service-quotas"] = stubbed(*rows).aws.client("service-quotas")
    return deployment


def test_doctor_shows_every_check_and_ends_with_1_when_one_fails(examined: Deployment) -> None:
    done = examined.run("doctor", "--json")
    assert isinstance(done.exception, CheckFailedError), done.exception
    rows = {row["check"]: row for row in json.loads(done.stdout)["checks"]}
    assert list(rows) == list(CHECKS)
    assert rows["controller"]["verdict"] == "pass"
    assert rows["bootstrap"]["verdict"] == "fail"
    assert "bootstrap" in str(done.exception)
    assert examined.world.sagemaker.created == []
    shown = examined.run("doctor").stdout
    assert "-> run 'cdk bootstrap' for us-west-2" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_the_controller_says_what_forbids_a_launch(examined: Deployment) -> None:
    fakes.real_client("s3").delete_object(Bucket=fakes.DATASET, Key="tokens/manifest.json")
    rows = json.loads(examined.run("doctor", "--json").stdout)["checks"]
    (said,) = [row for row in rows if row["check"] == "controller"]
    assert said["verdict"] == "fail"
    assert "manifest" in said["text"]

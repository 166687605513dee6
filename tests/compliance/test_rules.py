"""Every rule passes over a healthy template, and says what is wrong with a broken one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.compliance.checking import broken_rules
from cdk_blackwell.compliance.documentation import document
from cdk_blackwell.compliance.instance_types import PLAN_INSTANCE_COUNTS
from cdk_blackwell.compliance.requests import RUN_TYPE
from cdk_blackwell.compliance.rules import RULES
from cdk_blackwell.infrastructure.capacity import PLAN_INSTANCE_COUNTS as SOLD
from cdk_blackwell.lifecycle.handler.definition import RESOURCE_TYPE
from tests.compliance.healthy import (
    Body,
    Resources,
    found,
    get,
    healthy,
    member,
    policy,
    ref,
    resource,
    templates,
    without,
)

ROOT = Path(__file__).parent.parent.parent


def properties(name: str, **values: Any) -> Callable[[Resources], object]:
    return lambda resources: resources[name]["Properties"].update(values)


def lustre(**values: Any) -> Callable[[Resources], object]:
    return lambda resources: resources["Files"]["Properties"]["LustreConfiguration"].update(values)


def no_longer_needs(owner: str, name: str) -> Callable[[Resources], object]:
    return lambda resources: resources[owner]["DependsOn"].remove(name)


def in_another_zone(resources: Resources) -> None:
    resources["Other"] = resource(
        "AWS::EC2::Subnet", {"VpcId": ref("Vpc"), "AvailabilityZone": "us-west-2a"}
    )
    resources["Files"]["Properties"]["SubnetIds"] = [ref("Other")]


def egress_to_everybody_only(resources: Resources) -> None:
    resources["EfaEgress"]["Properties"] = {
        "GroupId": get("JobGroup", "GroupId"),
        "CidrIp": "0.0.0.0/0",
        "IpProtocol": "-1",
    }


TEMPLATE_FAULTS: list[tuple[str, Callable[[Resources], object], str]] = [
    ("EfaSelfEgress", without("EfaEgress"), "no egress rule admits all traffic"),
    ("EfaSelfEgress", egress_to_everybody_only, "no egress rule admits all traffic"),
    ("EfaSelfEgress", without("EfaIngress"), "no ingress rule admits all traffic"),
    ("LustrePorts", without("FilesToJobIngress1018"), "TCP 1018, 1023 through to JobGroup"),
    ("LustrePorts", without("JobToFilesEgress988"), "no egress rule lets TCP 988"),
    (
        "FileSystemAfterRules",
        no_longer_needs("Files", "FilesToFilesEgress988"),
        "does not wait for FilesToFilesEgress988",
    ),
    ("FileSystemZone", in_another_zone, "in us-west-2b, the file system Files in us-west-2a"),
    (
        "PublicIngress",
        properties("JobGroup", SecurityGroupIngress=[{"CidrIp": "0.0.0.0/0", "IpProtocol": "-1"}]),
        "admits traffic from 0.0.0.0/0",
    ),
    (
        "PublicIngress",
        properties("FilesGroup", SecurityGroupIngress=[{"CidrIpv6": "::/0", "IpProtocol": "tcp"}]),
        "admits traffic from ::/0",
    ),
    ("PublicSubnet", properties("Subnet", MapPublicIpOnLaunch=True), "Subnet, a public subnet"),
    ("S3Endpoint", without("S3"), "no route out and no S3 gateway endpoint"),
    ("CheckpointEncryption", properties("Store", BucketEncryption={}), "without a KMS key"),
    (
        "CheckpointPublicAccess",
        properties("Store", PublicAccessBlockConfiguration={"BlockPublicAcls": True}),
        "BlockPublicPolicy, IgnorePublicAcls, RestrictPublicBuckets not set",
    ),
    ("CheckpointTls", without("StorePolicy"), "no policy denies requests without TLS"),
    (
        "CheckpointKept",
        lambda resources: resources["Store"].update(DeletionPolicy="Delete"),
        "runs of Run go with the stack",
    ),
    ("StaleUploads", properties("Store", LifecycleConfiguration={}), "aborts stale uploads"),
    (
        "ExportDeletions",
        properties("Export", S3={"AutoExportPolicy": {"Events": ["NEW", "DELETED"]}}),
        "exports DELETED",
    ),
    (
        "FileSystemKept",
        lambda resources: resources["Files"].pop("DeletionPolicy"),
        "Run writes to it, and it goes with its stack",
    ),
    (
        "FileSystemEfa",
        lustre(EfaEnabled=True, DeploymentType="PERSISTENT_1"),
        "DeploymentType is PERSISTENT_1; there is no MetadataConfiguration",
    ),
    (
        "HandlerOutlivesResource",
        no_longer_needs("Run", "HandlerPolicy"),
        "HandlerPolicy, which its handler Handler works under",
    ),
    (
        "RunOutlivesNothing",
        no_longer_needs("Run", "JobToFilesEgress988"),
        "does not depend on JobToFilesEgress988",
    ),
    ("RunOutlivesNothing", no_longer_needs("Run", "TrainingPolicy"), "depend on TrainingPolicy"),
    ("RunOutlivesNothing", no_longer_needs("Run", "Export"), "depend on Export"),
    (
        "ConfusedDeputy",
        lambda resources: resources["TrainingRole"]["Properties"]["AssumeRolePolicyDocument"][
            "Statement"
        ][0].pop("Condition"),
        "without aws:SourceArn or aws:SourceAccount",
    ),
    (
        "WildcardActions",
        lambda resources: resources.update(TrainingPolicy=policy("TrainingRole", "s3:*", "*")),
        "may do *, s3:*",
    ),
    ("Alarms", without("NoProgress"), "no alarm tells of no progress"),
    (
        "Alarms",
        properties("Failed", AlarmActions=[]),
        "no alarm tells of failed attempts",
    ),
]


def each(*changes: Callable[[Body], object]) -> Callable[[Body], object]:
    def change(request: Body) -> None:
        for one in changes:
            one(request)

    return change


SPOT = member("EnableManagedSpotTraining", value=True)
PATIENT_SPOT = each(SPOT, member("StoppingCondition", "MaxWaitTimeInSeconds", value=90_000))

REQUEST_FAULTS: list[tuple[str, Callable[[Body], object], str]] = [
    (
        "RequestLimits",
        member("StoppingCondition", "MaxPendingTimeInSeconds", value=60),
        "StoppingCondition.MaxPendingTimeInSeconds is 60; allowed: 1800 to 2419200",
    ),
    ("RequestLimits", member("Colour", value="red"), "Colour is 'red'; allowed: one of"),
    (
        "VolumeKey",
        member("ResourceConfig", "VolumeKmsKeyId", value="key"),
        "VolumeKmsKeyId is given for ml.p6-b200.48xlarge",
    ),
    (
        "PlanCount",
        each(
            member(
                "ResourceConfig",
                "TrainingPlanArn",
                value="arn:aws:sagemaker:us-west-2:123456789012:training-plan/p",
            ),
            member("ResourceConfig", "InstanceCount", value=3),
        ),
        "InstanceCount is 3 under a training plan",
    ),
    (
        "CapacityMix",
        each(PATIENT_SPOT, member("ResourceConfig", "KeepAlivePeriodInSeconds", value=600)),
        "a warm pool of 600 s are both asked for",
    ),
    ("CapacityMix", SPOT, "spot waits None s"),
    (
        "CapacityMix",
        each(SPOT, member("StoppingCondition", "MaxWaitTimeInSeconds", value=60)),
        "spot waits 60 s (MaxWaitTimeInSeconds) for 86400 s",
    ),
    (
        "CapacityMix",
        member("StoppingCondition", "MaxWaitTimeInSeconds", value=90_000),
        "without managed spot training",
    ),
    (
        "CapacityMix",
        member("ResourceConfig", "InstancePreferences", value=[{"InstanceType": "ml.p5.48xlarge"}]),
        "InstancePreferences is combined",
    ),
    (
        "SpotCheckpoints",
        each(PATIENT_SPOT, member("InputDataConfig", value=[])),
        "without CheckpointConfig or a writable file system",
    ),
    (
        "SharedCheckpointPrefix",
        member("CheckpointConfig", value={"S3Uri": "s3://bucket/prefix/"}),
        "CheckpointConfig with InstanceCount 2",
    ),
    (
        "PendingDeadline",
        member("StoppingCondition", "MaxPendingTimeInSeconds", value=None),
        "no MaxPendingTimeInSeconds",
    ),
    (
        "RunTimeLimit",
        member("StoppingCondition", "MaxRuntimeInSeconds", value=None),
        "no MaxRuntimeInSeconds",
    ),
    (
        "RunTimeLimit",
        member("StoppingCondition", "MaxRuntimeInSeconds", value=864_000),
        "beyond the quota of 5 days",
    ),
    ("RetryStrategy", member("RetryStrategy", value=None), "there is no RetryStrategy"),
    (
        "NetworkIsolation",
        member("EnableNetworkIsolation", value=True),
        "calls that leave the container (CDKB_RUN_S3)",
    ),
    (
        "NetworkIsolation",
        member("EnableNetworkIsolation", value=True),
        "a channel is a file system",
    ),
    (
        "OutputCompression",
        member("OutputDataConfig", "CompressionType", value=None),
        "left to its default, GZIP",
    ),
    (
        "EnvironmentSecret",
        member("Environment", "HF_TOKEN", value="hf_123"),
        "HF_TOKEN has a value in the template",
    ),
    ("NcclOverrides", member("Environment", "NCCL_ALGO", value="Tree"), "NCCL_ALGO is Tree"),
    (
        "OwnEntrypoint",
        member("AlgorithmSpecification", "ContainerEntrypoint", value=None),
        "without AlgorithmSpecification.ContainerEntrypoint",
    ),
    (
        "TrafficEncryption",
        member("EnableInterContainerTrafficEncryption", value=True),
        "traffic among 2 instances is encrypted",
    ),
    (
        "ImageTag",
        member("AlgorithmSpecification", "TrainingImage", value="registry.example/team:latest"),
        "the image is team:latest",
    ),
    (
        "ImageTag",
        member("AlgorithmSpecification", "TrainingImage", value="registry.example:5000/team"),
        "the image is team",
    ),
]


def test_a_healthy_template_breaks_no_rule() -> None:
    assert found(healthy()) == {}


@pytest.mark.parametrize(("rule_id", "change", "text"), TEMPLATE_FAULTS)
def test_a_fault_in_the_template_is_found(
    rule_id: str, change: Callable[[Resources], object], text: str
) -> None:
    assert any(text in each for each in found(healthy(change))[rule_id])


@pytest.mark.parametrize(("rule_id", "change", "text"), REQUEST_FAULTS)
def test_a_fault_in_the_request_is_found(
    rule_id: str, change: Callable[[Body], object], text: str
) -> None:
    assert any(text in each for each in found(healthy(change_request=change))[rule_id])


def test_every_rule_has_a_fault_here() -> None:
    faults = {rule_id for rule_id, *_ in (*TEMPLATE_FAULTS, *REQUEST_FAULTS)} | {"PackageIndex"}
    assert faults == {each.id for each in RULES}


def test_rules_say_what_why_and_what_to_do() -> None:
    for each in RULES:
        for text in (each.title, each.why, each.fix):
            assert text.endswith(".")
            assert "  " not in text
    (broken,) = broken_rules(templates(healthy(without("EfaEgress"))))
    text = str(broken)
    assert text.startswith("EfaSelfEgress: template 1, JobGroup: no egress rule")
    assert broken.rule.why in text
    assert text.endswith(broken.rule.fix)


def test_the_documentation_is_in_step() -> None:
    assert (ROOT / "docs" / "rules.md").read_text() == document()


def test_what_rules_must_know_twice_is_the_same() -> None:
    """Imports run one way, so the rules cannot ask the constructs."""
    assert PLAN_INSTANCE_COUNTS == SOLD
    assert RUN_TYPE == RESOURCE_TYPE

"""Every rule passes over a healthy template, and says what is wrong with a broken one."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.compliance.checking import broken_rules
from cdk_blackwell.compliance.documentation import document
from cdk_blackwell.compliance.instance_types import PLAN_INSTANCE_COUNTS
from cdk_blackwell.compliance.requests import RUN_TYPE, parse, training_requests
from cdk_blackwell.compliance.rules import RULES
from cdk_blackwell.compliance.templates import Templates
from cdk_blackwell.infrastructure.capacity import PLAN_INSTANCE_COUNTS as SOLD
from cdk_blackwell.lifecycle.handler.definition import RESOURCE_TYPE
from tests.compliance.healthy import Body, get, healthy, policy, ref, resource, rule, templates

ROOT = Path(__file__).parent.parent.parent
Resources = dict[str, Body]


def found(body: Body, *others: Body) -> dict[str, list[str]]:
    """Rule id to what it found."""
    result: dict[str, list[str]] = {}
    for broken in broken_rules(templates(body, *others)):
        result.setdefault(broken.rule.id, []).append(broken.finding.found)
    return result


def without(*names: str) -> Callable[[Resources], object]:
    def change(resources: Resources) -> None:
        for name in names:
            del resources[name]
        for each in resources.values():
            if isinstance(each.get("DependsOn"), list):
                each["DependsOn"] = [name for name in each["DependsOn"] if name not in names]

    return change


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


def member(*path: str, value: Any) -> Callable[[Body], object]:
    def change(request: Body) -> None:
        place = request
        for step in path[:-1]:
            place = place.setdefault(step, {})
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value

    return change


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


# --- Where things lie ----------------------------------------------------------------------------


def test_what_lies_in_another_stack_is_found_by_its_export() -> None:
    body = healthy()
    shared = {name: body["Resources"].pop(name) for name in ("Store", "StorePolicy")}
    shared["Store"]["Properties"]["BucketEncryption"] = {}
    text = json.dumps(body).replace('{"Ref": "Store"}', '{"Fn::ImportValue": "shared:Store"}')
    other = {
        "Resources": shared,
        "Outputs": {"O": {"Value": ref("Store"), "Export": {"Name": "shared:Store"}}},
    }
    assert list(found(json.loads(text), other)) == ["CheckpointEncryption"]


def test_what_the_app_does_not_make_is_passed_over() -> None:
    def imported(request: Body) -> None:
        request["VpcConfig"] = {"SecurityGroupIds": ["sg-0123456789"], "Subnets": ["subnet-0123"]}
        channel = request["InputDataConfig"][0]["DataSource"]["FileSystemDataSource"]
        channel["FileSystemId"] = "fs-0123456789abcdef0"

    assert found(healthy(change_request=imported)) == {}


def test_a_single_instance_needs_no_efa() -> None:
    alone = member("ResourceConfig", "InstanceCount", value=1)
    assert found(healthy(without("EfaEgress"), change_request=alone)) == {}


def test_requests_of_step_functions_are_read_too() -> None:
    state = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sagemaker:createTrainingJob.sync",
        "Parameters": {
            "TrainingJobName.$": "$.name",
            "ResourceConfig": {
                "InstanceType": "ml.p5.48xlarge",
                "InstanceCount.$": "$.count",
                "VolumeKmsKeyId": "key",
            },
        },
    }
    body = {
        "Resources": {
            "Machine": resource(
                "AWS::StepFunctions::StateMachine",
                {"DefinitionString": json.dumps({"States": {"Train": state}})},
            )
        }
    }
    (request,) = training_requests(templates(body))
    assert request.where == "Properties/DefinitionString/States/Train"
    assert request.instance_count is None
    assert "VolumeKey" in found(body)


def test_text_that_is_no_json_is_passed_over() -> None:
    body = healthy()
    body["Resources"]["Run"]["Properties"]["Definition"] = "not JSON"
    assert training_requests(templates(body)) == []
    assert parse({"Ref": "Parameter"}) == {"Ref": "Parameter"}


def test_a_custom_resource_may_depend_on_its_handlers_policy_through_the_function() -> None:
    """As the CDK's own functions do: the function depends on its role's default policy."""

    def change(resources: Resources) -> None:
        resources["Run"]["DependsOn"].remove("HandlerPolicy")
        resources["Handler"]["DependsOn"] = "HandlerPolicy"

    assert "HandlerOutlivesResource" not in found(healthy(change))


def test_a_lustre_rule_by_address_range_counts_and_efa_by_range_does_not() -> None:
    def change(resources: Resources) -> None:
        without("JobToFilesEgress988", "JobToFilesEgress1018")(resources)
        resources["Any"] = rule("Egress", "JobGroup", "JobGroup", "tcp", 0)
        resources["Any"]["Properties"] |= {"CidrIp": "0.0.0.0/0", "FromPort": 0, "ToPort": 65535}
        del resources["Any"]["Properties"]["DestinationSecurityGroupId"]
        resources["Run"]["DependsOn"].append("Any")

    assert found(healthy(change)) == {}


# --- The bundle ----------------------------------------------------------------------------------


def assembly(folder: Path, body: Body, *, wheel: bytes | None) -> Templates:
    """A cloud assembly with a bundle whose lock asks for one package."""
    digest = hashlib.sha256(b"the wheel").hexdigest()
    members = {"requirements.lock": f"numpy==2.0 --hash=sha256:{digest}\n".encode()}
    if wheel is not None:
        members["wheelhouse/numpy-2.0-py3-none-any.whl"] = wheel
    with tarfile.open(folder / "asset.abc123.tar.gz", "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    path = folder / "Stack.template.json"
    path.write_text(json.dumps(body))
    return Templates.read({"Stack": path})


def with_bundle(change: Callable[[Resources], object] | None = None) -> Body:
    body = healthy(change)
    parts = body["Resources"]["Run"]["Properties"]["Definition"]["Fn::Join"][1]
    parts[-1] = parts[-1][:-1] + ', "bundle": {"bucket": "assets", "key": "abc123.gz"}}'
    return body


def ids(found_in: Templates) -> list[str]:
    return [broken.rule.id for broken in broken_rules(found_in)]


def test_wheels_that_nothing_can_bring_are_missed(tmp_path: Path) -> None:
    (broken,) = broken_rules(assembly(tmp_path, with_bundle(), wheel=None))
    assert broken.rule.id == "PackageIndex"
    assert "lacks wheels of numpy==2.0" in broken.finding.found


def test_a_wheel_counts_by_its_content(tmp_path: Path) -> None:
    assert ids(assembly(tmp_path, with_bundle(), wheel=b"another wheel")) == ["PackageIndex"]
    assert ids(assembly(tmp_path, with_bundle(), wheel=b"the wheel")) == []


def test_a_way_to_an_index_is_enough(tmp_path: Path) -> None:
    def nat(resources: Resources) -> None:
        resources["Default"] = resource(
            "AWS::EC2::Route", {"RouteTableId": ref("Routes"), "NatGatewayId": "nat-1"}
        )

    def endpoint(resources: Resources) -> None:
        resources["Packages"] = resource(
            "AWS::EC2::VPCEndpoint",
            {
                "VpcId": ref("Vpc"),
                "ServiceName": "com.amazonaws.us-west-2.codeartifact.repositories",
            },
        )

    for way in (nat, endpoint):
        assert ids(assembly(tmp_path, with_bundle(way), wheel=None)) == []

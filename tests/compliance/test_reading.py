"""How rules read: other stacks, what the app does not make, state machines, the bundle."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from cdk_blackwell.compliance.checking import broken_rules
from cdk_blackwell.compliance.requests import parse, training_requests
from cdk_blackwell.compliance.templates import Templates
from tests.compliance.healthy import (
    Body,
    Resources,
    found,
    healthy,
    member,
    ref,
    resource,
    rule,
    templates,
    without,
)

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
    assert training_requests(templates(body)) == ()
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


@pytest.mark.parametrize(
    ("path", "matters"), [("/checkpoints/mine", True), ("/", True), ("/others", False)]
)
def test_a_run_depends_on_associations_of_its_own_folders_only(path: str, matters: bool) -> None:
    def change(resources: Resources) -> None:
        resources["Export"]["Properties"]["FileSystemPath"] = path
        resources["Run"]["DependsOn"].remove("Export")

    assert ("RunOutlivesNothing" in found(healthy(change))) is matters


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


@pytest.mark.parametrize(
    ("account", "found"), [("442386744353", ["PackageIndex"]), ("123456789012", [])]
)
def test_images_of_aws_are_known_in_every_partition(
    account: str, found: list[str], tmp_path: Path
) -> None:
    text = json.dumps(with_bundle())
    assert "763104351884.dkr.ecr." in text
    elsewhere = json.loads(text.replace("763104351884.dkr.ecr.", f"{account}.dkr.ecr."))
    assert ids(assembly(tmp_path, elsewhere, wheel=None)) == found


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

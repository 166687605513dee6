"""Templates of other people: written by hand, filled in at deploy, or broken. No rule stumbles."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest

from cdk_blackwell.compliance.checking import broken_rules
from cdk_blackwell.compliance.requests import parse
from cdk_blackwell.compliance.templates import Templates, is_intrinsic, member
from tests.compliance.healthy import (
    RUN,
    Body,
    Resources,
    as_text,
    found,
    healthy,
    ref,
    resource,
    without,
)

Path = tuple[Any, ...]
ODD: list[Any] = [
    {"Fn::If": ["Production", ref("Theirs"), ref("AWS::NoValue")]},
    {"Fn::GetAtt": ["Store", ref("Which")]},
    {"Fn::Sub": ref("Pattern")},
    {"Fn::Join": ["", ref("Parts")]},
    "text",
    5,
    None,
    [None],
]
"""Each where anything may stand: functions, functions that are no valid ones, other kinds."""


def places(value: Any, here: Path = ()) -> Iterator[Path]:
    if here:
        yield here
    steps: Any = value.items() if isinstance(value, dict) else ()
    steps = enumerate(value) if isinstance(value, list) else steps
    for step, item in steps:
        yield from places(item, (*here, step))


def changed(value: Any, place: Path, to: Any) -> Any:
    """A copy of ``value``, of which only the way to ``place`` is new."""
    if not place:
        return to
    step, *rest = place
    made = copy.copy(value)
    made[step] = changed(value[step], tuple(rest), to)
    return made


def test_nothing_in_a_template_makes_a_rule_stumble() -> None:
    body = healthy()
    for number, place in enumerate(places(body)):
        broken_rules(Templates.of(changed(body, place, ODD[number % len(ODD)])))


def test_nothing_in_a_request_makes_a_rule_stumble() -> None:
    body = healthy()
    definition = parse(body["Resources"][RUN]["Properties"]["Definition"])
    for number, place in enumerate(places(definition["request"])):
        if "Fn::Join" in place:
            continue  # as_text writes no broken ones.
        to = [ref("Theirs"), "text", 5, None, [None], {}][number % 6]
        other = {**definition, "request": changed(definition["request"], place, to)}
        where = ("Resources", RUN, "Properties", "Definition")
        broken_rules(Templates.of(changed(body, where, as_text(other))))


UNKNOWN = {"Fn::If": ["Production", ref("A"), ref("B")]}


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("Store", "BucketEncryption"),
        ("Store", "BucketEncryption/ServerSideEncryptionConfiguration"),
        ("Store", "PublicAccessBlockConfiguration"),
        ("Store", "PublicAccessBlockConfiguration/BlockPublicAcls"),
        ("Store", "LifecycleConfiguration"),
        ("Store", "LifecycleConfiguration/Rules"),
        ("StorePolicy", "PolicyDocument"),
        ("StorePolicy", "PolicyDocument/Statement"),
        ("TrainingRole", "AssumeRolePolicyDocument"),
        ("TrainingRole", "AssumeRolePolicyDocument/Statement"),
        ("StorePolicy", "PolicyDocument/Statement/0/Effect"),
        ("TrainingRole", "AssumeRolePolicyDocument/Statement/0/Condition"),
        ("TrainingRole", "AssumeRolePolicyDocument/Statement/0/Condition/ArnLike"),
        ("EfaEgress", "DestinationSecurityGroupId"),
        ("EfaEgress", "IpProtocol"),
        ("JobToFilesEgress988", "DestinationSecurityGroupId"),
        ("JobToFilesIngress1018", "FromPort"),
        ("S3", "RouteTableIds"),
        ("S3", "RouteTableIds/0"),
        ("Export", "S3"),
        ("Subnet", "AvailabilityZone"),
    ],
)
def test_what_is_known_only_at_deploy_is_no_mistake(name: str, path: str) -> None:
    steps = [int(step) if step.isdigit() else step for step in path.split("/")]
    place = ("Resources", name, "Properties", *steps)
    assert found(changed(healthy(), place, UNKNOWN)) == {}


def spot(request: Body) -> None:
    """A request for spare instances, without a fault."""
    limits = request["StoppingCondition"]
    del limits["MaxPendingTimeInSeconds"]
    limits["MaxWaitTimeInSeconds"] = limits["MaxRuntimeInSeconds"]
    request["EnableManagedSpotTraining"] = True
    request["ResourceConfig"]["InstanceCount"] = 1
    request["CheckpointConfig"] = {"S3Uri": "s3://theirs/checkpoints"}


@pytest.mark.parametrize("change", [None, spot], ids=["on-demand", "spot"])
def test_no_part_of_a_request_is_a_mistake_because_it_is_filled_in_later(change: Any) -> None:
    body = healthy(change_request=change)
    assert found(body) == {}
    definition = parse(body["Resources"][RUN]["Properties"]["Definition"])
    for place in places(definition["request"]):
        if {"Fn::Join", "Fn::GetAtt", "Ref"} & set(place):
            continue
        other = {**definition, "request": changed(definition["request"], place, ref("Later"))}
        where = ("Resources", RUN, "Properties", "Definition")
        assert found(changed(body, where, as_text(other))) == {}, place


def test_the_key_of_encryption_may_be_known_only_at_deploy() -> None:
    def choose(resources: Resources) -> None:
        default = {"SSEAlgorithm": ref("Algorithm"), "KMSMasterKeyID": ref("Key")}
        resources["Store"]["Properties"]["BucketEncryption"] = {
            "ServerSideEncryptionConfiguration": [{"ServerSideEncryptionByDefault": default}]
        }

    assert found(healthy(choose)) == {}


def by_hand(**properties: Any) -> Body:
    """The healthy template, its Lustre rules replaced by others between job and file servers."""
    body = healthy()
    resources = body["Resources"]
    lustre = [
        name
        for name, each in resources.items()
        if each["Type"].startswith("AWS::EC2::SecurityGroup")
        and each["Properties"].get("FromPort") in (988, 1018)
    ]
    assert lustre
    without(*lustre)(resources)
    for group in ("JobGroup", "FilesGroup"):
        for way in ("Ingress", "Egress"):
            resources[f"{group}{way}ByHand"] = resource(
                f"AWS::EC2::SecurityGroup{way}",
                {"GroupId": {"Fn::GetAtt": [group, "GroupId"]}, **properties},
            )
            resources[RUN]["DependsOn"].append(f"{group}{way}ByHand")
            resources["Files"].setdefault("DependsOn", []).append(f"{group}{way}ByHand")
    return body


@pytest.mark.parametrize(
    "properties",
    [
        {"CidrIp": "10.0.0.0/16", "IpProtocol": "tcp", "FromPort": 988, "ToPort": 1023},
        {"CidrIp": ref("VpcRange"), "IpProtocol": "TCP", "FromPort": "988", "ToPort": "1023"},
        {"CidrIp": "10.0.0.0/16", "IpProtocol": 6, "FromPort": ref("First"), "ToPort": 65535},
        {"CidrIp": "10.0.0.0/16", "IpProtocol": -1},
        {"CidrIp": "10.0.0.0/16", "IpProtocol": "-1"},
    ],
)
def test_lustre_may_be_let_through_by_address(properties: Body) -> None:
    assert "LustrePorts" not in found(by_hand(**properties))


def test_ports_that_miss_lustres_are_found_however_written() -> None:
    body = by_hand(CidrIp="10.0.0.0/16", IpProtocol="tcp", FromPort="1", ToPort="987")
    assert "LustrePorts" in found(body)


def test_a_group_without_egress_rules_lets_lustre_out_but_not_efa() -> None:
    """CloudFormation gives such a group one rule, to every address; EFA is not IP."""
    body = healthy()
    resources = body["Resources"]
    egress = [n for n, each in resources.items() if each["Type"].endswith("SecurityGroupEgress")]
    without(*egress)(resources)
    for each in resources.values():
        each.get("Properties", {}).pop("SecurityGroupEgress", None)
    assert list(found(body)) == ["EfaSelfEgress"]


@pytest.mark.parametrize(
    ("enabled", "capacity", "kind", "broken"),
    [
        ("true", "1200", "PERSISTENT_2", True),
        ("true", "4800", "PERSISTENT_2", False),
        (True, ref("Size"), ref("Kind"), False),
        (True, "4800", "SCRATCH_2", True),
        ("false", "1200", "SCRATCH_2", False),
    ],
)
def test_truth_and_numbers_may_be_written_as_text(
    enabled: Any, capacity: Any, kind: Any, broken: bool
) -> None:
    configuration = {"EfaEnabled": enabled, "DeploymentType": kind, "MetadataConfiguration": {}}
    properties = {"LustreConfiguration": configuration, "StorageCapacity": capacity}
    body = {"Resources": {"Alone": resource("AWS::FSx::FileSystem", properties)}}
    assert ("FileSystemEfa" in found(body)) is broken


def test_zones_differ_only_where_that_is_known() -> None:
    def zone(value: Any) -> Body:
        return {
            "Resources": {
                **healthy()["Resources"],
                "Elsewhere": resource("AWS::EC2::Subnet", {"AvailabilityZone": value}),
            }
        }

    def apart(here: Any, there: Any) -> bool:
        body = changed(
            zone(there), ("Resources", "Files", "Properties", "SubnetIds"), [ref("Elsewhere")]
        )
        subnet = ("Resources", "Subnet", "Properties", "AvailabilityZone")
        return "FileSystemZone" in found(changed(body, subnet, here))

    def nth(number: Any) -> Body:
        return {"Fn::Select": [number, {"Fn::GetAZs": ""}]}

    assert apart("us-west-2a", "us-west-2b")
    assert apart(nth(0), nth("1"))
    assert not apart(nth(0), nth("0"))
    assert not apart("us-west-2a", nth(0))
    assert not apart(ref("ZoneA"), ref("ZoneB"))


def test_what_lies_in_a_nested_stack_is_not_judged_by_that_stack() -> None:
    nested = healthy()
    for name in ("Files", "Store"):
        nested["Resources"][name] = resource("AWS::CloudFormation::Stack", {"TemplateURL": "..."})
    text = json.dumps(nested).replace('{"Ref": "Files"}', '{"Fn::GetAtt": ["Files", "Outputs.Id"]}')
    text = text.replace('{"Ref": "Store"}', '{"Fn::GetAtt": ["Store", "Outputs.Name"]}')
    assert found(json.loads(text)) == {}


def test_functions_are_told_apart_from_values() -> None:
    assert is_intrinsic(ref("A"))
    assert is_intrinsic({"Fn::If": []})
    for plain in ({}, {"Ref": 1, "other": 2}, "Ref", None, [ref("A")], {"Reference": "A"}):
        assert not is_intrinsic(plain)
    assert member({"a": ref("A")}, "a", "b") == ref("A")
    assert member({"a": 5}, "a", "b") is None
    assert json.dumps(member({"a": {"b": 1}}, "a")) == '{"b": 1}'

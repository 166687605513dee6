"""Templates: functions, conditions, parameters, order."""

from __future__ import annotations

from typing import Any

import pytest

from cdk_blackwell.local.cloudformation.template import (
    Scope,
    TemplateError,
    creation_order,
    read_template,
    resolve_parameters,
)

RESOURCES = {"Bucket": {"Type": "AWS::S3::Bucket"}}


def scope(template: dict[str, Any] | None = None) -> Scope:
    ids = {"Bucket": "my-bucket"}
    attributes = {("Bucket", "Arn"): "arn:aws:s3:::my-bucket"}
    return Scope(
        template=template or {"Resources": RESOURCES},
        values={"AWS::Region": "us-west-2", "Stage": "test"},
        physical_id=lambda name: ids[name],
        attribute=lambda name, attribute: attributes[name, attribute],
        import_value=lambda name: f"imported {name}",
        zones=lambda region: [f"{region}a", f"{region}b"],
    )


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"Ref": "Bucket"}, "my-bucket"),
        ({"Fn::GetAtt": ["Bucket", "Arn"]}, "arn:aws:s3:::my-bucket"),
        (
            {"Fn::Sub": "${Bucket}/${Bucket.Arn}/${!Kept}"},
            "my-bucket/arn:aws:s3:::my-bucket/${Kept}",
        ),
        ({"Fn::Sub": ["${Own}-${Stage}", {"Own": {"Ref": "Bucket"}}]}, "my-bucket-test"),
        ({"Fn::Join": ["/", ["s3:", {"Ref": "Bucket"}, 7, True]]}, "s3:/my-bucket/7/true"),
        ({"Fn::Select": ["1", {"Fn::GetAZs": ""}]}, "us-west-2b"),
        ({"Fn::Split": [",", "a,b"]}, ["a", "b"]),
        ({"Fn::ImportValue": {"Fn::Sub": "x-${Stage}"}}, "imported x-test"),
        ({"a": {"Ref": "AWS::NoValue"}, "b": [1, {"Ref": "AWS::NoValue"}]}, {"b": [1]}),
        ({"Fn::ToJsonString": {"bucket": {"Ref": "Bucket"}}}, '{"bucket": "my-bucket"}'),
    ],
)
def test_functions_give_what_cloudformation_gives(value: Any, expected: Any) -> None:
    assert scope().resolve(value) == expected


def test_conditions_choose_and_are_named_in_other_conditions() -> None:
    template = {
        "Resources": RESOURCES,
        "Conditions": {
            "IsTest": {"Fn::Equals": [{"Ref": "Stage"}, "test"]},
            "IsNot": {"Fn::Not": [{"Condition": "IsTest"}]},
        },
    }
    assert scope(template).resolve({"Fn::If": ["IsTest", "yes", "no"]}) == "yes"
    assert not scope(template).includes({"Condition": "IsNot"})


def test_a_missing_attribute_names_resource_type_and_attribute() -> None:
    with pytest.raises(TemplateError, match=r"Bucket \(AWS::S3::Bucket\).*Colour"):
        scope().resolve({"Fn::GetAtt": ["Bucket", "Colour"]})


def test_an_unknown_function_is_refused_instead_of_kept_as_data() -> None:
    with pytest.raises(TemplateError, match="Fn::Cidr"):
        scope().resolve({"Fn::Cidr": ["10.0.0.0/16", 4, 8]})


def test_yaml_keeps_dates_as_text_and_reads_short_functions() -> None:
    template = read_template(
        "AWSTemplateFormatVersion: 2010-09-09\n"
        "Resources:\n  A:\n    Type: T\n    Properties:\n      X: !Sub '${B}'\n"
        "      Y: !GetAtt B.Arn\n  B:\n    Type: T\n"
    )
    assert template["AWSTemplateFormatVersion"] == "2010-09-09"
    assert template["Resources"]["A"]["Properties"] == {
        "X": {"Fn::Sub": "${B}"},
        "Y": {"Fn::GetAtt": ["B", "Arn"]},
    }


def test_creation_follows_references_and_depends_on() -> None:
    template = {
        "Resources": {
            "Last": {"Type": "T", "DependsOn": "Middle"},
            "Middle": {"Type": "T", "Properties": {"x": {"Fn::Sub": "${First.Arn}"}}},
            "First": {"Type": "T"},
        }
    }
    assert creation_order(template) == ["First", "Middle", "Last"]


def test_a_circle_is_named() -> None:
    template = {
        "Resources": {
            "A": {"Type": "T", "Properties": {"b": {"Ref": "B"}}},
            "B": {"Type": "T", "DependsOn": ["A"]},
        }
    }
    with pytest.raises(TemplateError, match=r"Circular dependency .*\[.*A.*B.*\]"):
        creation_order(template)


def test_parameters_take_defaults_lists_and_ssm_values() -> None:
    template = {
        "Parameters": {
            "Names": {"Type": "CommaDelimitedList", "Default": "a, b"},
            "Version": {"Type": "AWS::SSM::Parameter::Value<String>", "Default": "/version"},
        }
    }
    values = resolve_parameters(template, {}, read_ssm={"/version": "33"}.__getitem__)
    assert values == {"Names": ["a", "b"], "Version": "33"}
    with pytest.raises(TemplateError, match=r"\[Colour\] do not exist"):
        resolve_parameters(template, {"Colour": "red"}, read_ssm=str)

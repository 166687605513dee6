"""What tools of others say about our templates: cfn-lint, and parliament about every IAM policy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import cfnlint
import parliament
import pytest
from aws_cdk import App

from app import build

IMAGE = {"image": "123456789012.dkr.ecr.us-west-2.amazonaws.com/own:1", "packages_in_image": "true"}

DELIBERATE = {
    "W3005": "dependencies that hold the order on delete are written out, whatever refers to what",
    "W6001": "one output tells the command line everything, also what another stack exports",
}
"""Warnings of cfn-lint that do not apply, with the reason."""

PSEUDO = {
    "AWS::Partition": "aws",
    "AWS::Region": "us-west-2",
    "AWS::AccountId": "123456789012",
    "AWS::URLSuffix": "amazonaws.com",
}
ARNS = {
    "AWS::IAM::Role": "arn:aws:iam::123456789012:role/name",
    "AWS::KMS::Key": "arn:aws:kms:us-west-2:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab",
    "AWS::Lambda::Function": "arn:aws:lambda:us-west-2:123456789012:function:name",
    "AWS::DynamoDB::Table": "arn:aws:dynamodb:us-west-2:123456789012:table/name",
    "AWS::SQS::Queue": "arn:aws:sqs:us-west-2:123456789012:name",
    "AWS::SNS::Topic": "arn:aws:sns:us-west-2:123456789012:name",
    "AWS::Logs::LogGroup": "arn:aws:logs:us-west-2:123456789012:log-group:name:*",
    "AWS::S3::Bucket": "arn:aws:s3:::name",
}
REF_IS_ARN = ("AWS::SNS::Topic",)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Foundation and all tiers."""
    path = tmp_path_factory.mktemp("tools")
    build(App(context={**IMAGE, "region": "us-west-2"}, outdir=str(path))).synth()
    return path


@pytest.mark.slow
def test_cfn_lint_has_nothing_to_say(folder: Path) -> None:
    said = {
        f"{match.rule.id} {match.filename}: {match.message}"
        for path in folder.glob("*.template.json")
        for match in cfnlint.lint_file(path, config={"regions": ["us-west-2"]})
        if match.rule.id not in DELIBERATE
    }
    assert not said


class Values:
    """Intrinsic functions as texts of the right form, so that policies can be read as IAM will."""

    def __init__(self, folder: Path) -> None:
        self.templates = [json.loads(p.read_text()) for p in folder.glob("*.template.json")]
        self.exports = {
            output["Export"]["Name"]: (template, output["Value"])
            for template in self.templates
            for output in template.get("Outputs", {}).values()
            if "Export" in output
        }

    def of(self, value: Any, template: Mapping[str, Any]) -> Any:
        if isinstance(value, list):
            return [self.of(item, template) for item in value]
        if not isinstance(value, dict):
            return value
        if "Fn::Join" in value:
            separator, parts = value["Fn::Join"]
            return separator.join(self.of(part, template) for part in parts)
        if "Fn::ImportValue" in value:
            there, exported = self.exports[value["Fn::ImportValue"]]
            return self.of(exported, there)
        if "Fn::Sub" in value:
            return "name"
        if "Ref" in value:
            if value["Ref"] in PSEUDO:
                return PSEUDO[value["Ref"]]
            kind = template["Resources"][value["Ref"]]["Type"]
            return ARNS[kind] if kind in REF_IS_ARN else "name"
        if "Fn::GetAtt" in value:
            name, attribute = value["Fn::GetAtt"]
            kind = template["Resources"][name]["Type"]
            return ARNS[kind] if attribute.endswith("Arn") else "name"
        return {key: self.of(item, template) for key, item in value.items()}

    def policies(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for template in self.templates:
            for name, resource in template["Resources"].items():
                if resource["Type"] in ("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
                    yield name, self.of(resource["Properties"]["PolicyDocument"], template)


def test_parliament_finds_no_fault_in_any_policy(folder: Path) -> None:
    policies = list(Values(folder).policies())
    assert len(policies) > 6
    said = {
        f"{name}: {finding.issue}: {finding.detail}"
        for name, policy in policies
        for finding in parliament.analyze_policy_string(json.dumps(policy)).findings
    }
    assert not said


def test_parliament_would_see_a_fault() -> None:
    policy = {
        "Version": "2012-10-17",
        "Statement": {"Effect": "Allow", "Action": "s3:GetObjekt", "Resource": "*"},
    }
    (finding,) = parliament.analyze_policy_string(json.dumps(policy)).findings
    assert finding.issue == "UNKNOWN_ACTION"

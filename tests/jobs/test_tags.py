"""Tags reach the training jobs too, which no template creates."""

from __future__ import annotations

from pathlib import Path

import pytest
from aws_cdk import App, Environment, Stack, Tags
from aws_cdk.assertions import Template

from cdk_blackwell import Foundation, RequestInputs, SmallModelJob
from tests.jobs.examples import REGION, SMALL, ZONE, request_of


def tags_of(stack: Stack) -> dict[str, str]:
    return {tag["Key"]: tag["Value"] for tag in request_of(stack)["Tags"]}


def test_a_job_carries_the_tags_of_app_and_construct_and_its_identity(
    stack: Stack, foundation: Foundation
) -> None:
    job = SmallModelJob(stack, "Job", foundation=foundation, **SMALL)
    # After the constructor, as Tags work by aspects.
    Tags.of(stack.node.root).add("team", "speech")
    Tags.of(job).add("note", 'says "hello"')
    assert tags_of(stack) == {
        "team": "speech",
        "note": 'says "hello"',
        "cdk-blackwell:job": "Mine-Job",
        "cdk-blackwell:run-id": "run-1",
        "cdk-blackwell:attempt": "1",
        "cdk-blackwell:stack": "arn:aws:cloudformation:us-west-2:123456789012:stack/Stack/0a1b2c3d",
    }


def test_a_stacks_own_tags_count(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path / "out"))
    stack = Stack(app, "Mine", env=Environment(region=REGION), tags={"cost-centre": "42"})
    foundation = Foundation(stack, "Foundation", availability_zone=ZONE)
    SmallModelJob(stack, "Job", foundation=foundation, **SMALL)
    assert tags_of(stack)["cost-centre"] == "42"


def test_tags_of_a_subclass_stay(stack: Stack, foundation: Foundation) -> None:
    class Ours(SmallModelJob):
        def request_template(self, inputs: RequestInputs) -> dict[str, object]:
            return {**super().request_template(inputs), "Tags": [{"Key": "own", "Value": "yes"}]}

    Ours(stack, "Job", foundation=foundation, **SMALL)
    assert tags_of(stack)["own"] == "yes"


def test_resources_of_a_job_are_tagged_with_its_name(stack: Stack, foundation: Foundation) -> None:
    SmallModelJob(stack, "Job", foundation=foundation, **SMALL)
    template = Template.from_stack(stack)
    for kind in ("AWS::Lambda::Function", "AWS::DynamoDB::Table", "AWS::SQS::Queue"):
        (resource,) = template.find_resources(kind).values()
        tags = {tag["Key"]: tag["Value"] for tag in resource["Properties"]["Tags"]}
        assert tags["cdk-blackwell:job"] == "Mine-Job"


def test_fails_when_a_job_would_carry_too_many(stack: Stack, foundation: Foundation) -> None:
    SmallModelJob(stack, "Job", foundation=foundation, **SMALL)
    app = stack.node.root
    assert isinstance(app, App)
    for number in range(46):
        Tags.of(stack).add(f"tag-{number}", "x")
    with pytest.raises(RuntimeError, match=r"would carry 47 tags.*takes 50"):
        app.synth()

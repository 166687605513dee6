"""Where a job can be deployed: partitions, regions, accounts, bootstraps, and any name."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsii
import pytest
from aws_cdk import (
    App,
    Aspects,
    CfnResource,
    DefaultStackSynthesizer,
    Environment,
    IAspect,
    PermissionsBoundary,
    Stack,
    Stage,
)
from aws_cdk import aws_iam as iam
from aws_cdk.assertions import Template
from constructs import IConstruct

from cdk_blackwell import Capacity, Foundation, LargeShardedJob, SmallModelJob
from cdk_blackwell.planning.contracts import JOB_PREFIX_LENGTH, training_job_name
from tests.jobs.examples import ACCOUNT, LARGE, PLAN, SMALL, definition_of

TWO_NODES = {**LARGE, "instance_count": 2}


def job_stack(scope: Any, name: str, region: str | None, **stack_props: Any) -> Stack:
    """A large job and its foundation in one stack."""
    environment = Environment(region=region) if region else None
    stack = Stack(scope, name, env=environment, **stack_props)
    zone = f"{region}a" if region else "us-west-2a"
    foundation = Foundation(stack, "Foundation", availability_zone=zone)
    LargeShardedJob(stack, "Train", foundation=foundation, **TWO_NODES)
    return stack


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield key
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, str):
        yield value


@pytest.mark.parametrize("region", ["us-west-2", "us-gov-west-1", "cn-north-1", None])
def test_no_partition_is_written_into_a_template(tmp_path: Path, region: str | None) -> None:
    template = Template.from_stack(job_stack(App(outdir=str(tmp_path)), "Job", region)).to_json()
    written = [text for text in strings(template) if "arn:aws" in text or ".amazonaws.com/" in text]
    # The service principals of AWS itself are the same in every partition.
    assert not [text for text in written if "service-role" not in text]


@pytest.mark.parametrize(
    ("region", "account"),
    [
        ("us-west-2", "763104351884"),
        ("us-gov-west-1", "442386744353"),
        ("cn-north-1", "727897471807"),
        (None, "763104351884"),
    ],
)
def test_the_image_is_of_the_regions_own_account(
    tmp_path: Path, region: str | None, account: str
) -> None:
    template = Template.from_stack(job_stack(App(outdir=str(tmp_path)), "Job", region))
    (run,) = template.find_resources("Custom::CdkBlackwellRun").values()
    assert f"{account}.dkr.ecr." in json.dumps(run["Properties"]["Definition"])


def test_a_plan_of_another_partition_is_taken_as_it_is(tmp_path: Path) -> None:
    stack = Stack(App(outdir=str(tmp_path)), "Job", env=Environment(region="us-gov-west-1"))
    plan = PLAN.replace("arn:aws:", "arn:aws-us-gov:").replace("us-west-2", "us-gov-west-1")
    SmallModelJob(
        stack,
        "Train",
        foundation=Foundation(stack, "Foundation", availability_zone="us-gov-west-1a"),
        capacity=Capacity.training_plan(plan),
        **SMALL,
    )
    assert definition_of(stack).request["ResourceConfig"]["TrainingPlanArn"] == plan


def test_one_job_in_two_regions_of_one_app(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stacks = [
        job_stack(Stage(app, f"Stage{number}"), "Job", region)
        for number, region in enumerate(("us-west-2", "us-east-1"))
    ]
    definitions = [definition_of(stack) for stack in stacks]
    assert len({definition.job for definition in definitions}) == 2
    assert all(len(definition.job) <= JOB_PREFIX_LENGTH for definition in definitions)


def test_a_long_name_of_a_stack_gives_names_within_sagemakers_limits(tmp_path: Path) -> None:
    stack = job_stack(App(outdir=str(tmp_path)), "Platform" * 12, "us-west-2")
    name = training_job_name(
        job=definition_of(stack).job,
        stack_id="arn:aws:cloudformation:us-west-2:123456789012:stack/x/y",
        run_id="r" * 24,
        attempt=999,
    )
    assert len(name) <= 63
    template = Template.from_stack(stack).to_json()
    assert all(len(logical_id) <= 255 for logical_id in template["Resources"])
    # Nothing that CloudFormation names itself is named here, so two stacks never meet.
    for resource in template["Resources"].values():
        named = {"FunctionName", "TableName", "QueueName", "TopicName", "RoleName", "BucketName"}
        properties = resource.get("Properties", {})
        assert not [name for name in named if isinstance(properties.get(name), str)]


def test_a_custom_bootstrap_is_used_throughout(tmp_path: Path) -> None:
    stack = job_stack(
        App(outdir=str(tmp_path)),
        "Job",
        "us-west-2",
        synthesizer=DefaultStackSynthesizer(qualifier="team42"),
    )
    text = json.dumps(Template.from_stack(stack).to_json())
    assert "cdk-team42-assets" in text
    assert "hnb659fds" not in text


def test_a_permissions_boundary_reaches_every_role(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = job_stack(
        app,
        "Job",
        "us-west-2",
        permissions_boundary=PermissionsBoundary.from_name("team-boundary"),
    )
    roles = Template.from_stack(stack).find_resources("AWS::IAM::Role")
    assert len(roles) >= 3
    assert all("team-boundary" in json.dumps(r["Properties"]) for r in roles.values())


def test_a_permissions_boundary_of_one_job_alone(tmp_path: Path) -> None:
    stack = job_stack(App(outdir=str(tmp_path)), "Job", "us-west-2")
    policy = iam.ManagedPolicy.from_managed_policy_name(stack, "Boundary", "team-boundary")
    iam.PermissionsBoundary.of(stack.node.find_child("Train")).apply(policy)
    roles = Template.from_stack(stack).find_resources("AWS::IAM::Role")
    bounded = [name for name, r in roles.items() if "team-boundary" in json.dumps(r["Properties"])]
    assert bounded
    assert all(name.startswith("Train") for name in bounded)


@jsii.implements(IAspect)
class Marking:
    """An organisation's rule, of the kind that visits every resource."""

    def visit(self, node: IConstruct) -> None:
        if isinstance(node, CfnResource):
            node.add_metadata("seen", True)


def test_aspects_reach_every_resource(tmp_path: Path) -> None:
    stack = job_stack(App(outdir=str(tmp_path)), "Job", "us-west-2")
    Aspects.of(stack).add(Marking())
    resources = Template.from_stack(stack).to_json()["Resources"]
    assert all(resource["Metadata"]["seen"] for resource in resources.values())


def test_jobs_in_stacks_of_their_own_share_a_foundation_that_never_changes(
    tmp_path: Path,
) -> None:
    """A job that comes and goes adds nothing but exports to the foundation's stack."""
    app = App(outdir=str(tmp_path))
    environment = Environment(region="us-west-2", account=ACCOUNT)
    base = Stack(app, "Base", env=environment)
    foundation = Foundation(base, "Foundation", availability_zone="us-west-2a")
    for name in ("One", "Two"):
        LargeShardedJob(
            Stack(app, name, env=environment), "Train", foundation=foundation, **TWO_NODES
        )
    alone = Stack(App(outdir=str(tmp_path / "alone")), "Base", env=environment)
    Foundation(alone, "Foundation", availability_zone="us-west-2a")
    shared = Template.from_stack(base).to_json()["Resources"]
    assert shared == Template.from_stack(alone).to_json()["Resources"]

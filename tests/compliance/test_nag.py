"""The packs' report over all stacks equals the list of acknowledgements, in both directions.

``everything`` holds the application's stacks and every other way to use the constructs: NAT, an
index of packages, each capacity, several instances, parts that exist.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App, Stack, Validations
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_iam as iam
from aws_cdk import aws_s3 as s3
from cdk_nag import AwsSolutionsChecks, NagPack

from cdk_blackwell.compliance.acknowledgements import ACKNOWLEDGEMENTS
from cdk_blackwell.compliance.nag import (
    NagFinding,
    acknowledge_findings,
    acknowledge_now,
    matching,
    nag_findings,
    packs,
)
from cdk_blackwell.infrastructure.checkpoint_store import CheckpointStore
from cdk_blackwell.infrastructure.s3_prefix import S3Prefix
from cdk_blackwell.infrastructure.training_image import TrainingImage
from cdk_blackwell.infrastructure.training_role import TrainingRole
from tests.compliance.everything import application, everything


@pytest.fixture(scope="module")
def synthesised(tmp_path_factory: pytest.TempPathFactory) -> App:
    app = everything(tmp_path_factory.mktemp("nag"))
    app.synth()
    return app


@pytest.fixture(scope="module")
def findings(synthesised: App) -> list[NagFinding]:
    return nag_findings(synthesised, packs(synthesised))


def test_every_finding_is_acknowledged(synthesised: App, findings: list[NagFinding]) -> None:
    assert len(findings) > 100
    unanswered = [finding for finding, entry in matching(synthesised, findings) if entry is None]
    assert unanswered == []


def test_every_acknowledgement_is_needed(synthesised: App, findings: list[NagFinding]) -> None:
    used = {
        (entry.construct, entry.path, finding.rule, entry.finding)
        for finding, entry in matching(synthesised, findings)
        if entry
    }
    listed = {
        (entry.construct, entry.path, rule, entry.finding)
        for entry in ACKNOWLEDGEMENTS
        for rule in entry.rules
    }
    assert used == listed


def test_each_is_listed_once_and_says_why() -> None:
    keys = [
        (entry.construct, entry.path, rule, entry.finding)
        for entry in ACKNOWLEDGEMENTS
        for rule in entry.rules
    ]
    assert len(keys) == len(set(keys))
    for entry in ACKNOWLEDGEMENTS:
        assert len(entry.reason) > 60
        assert entry.reason.endswith(".")


def test_no_wildcard_of_a_finding_is_left_to_chance() -> None:
    """The placeholders of a finding match no wildcard: one more in a policy is a new finding."""
    (runs,) = (
        entry
        for entry in ACKNOWLEDGEMENTS
        if entry.construct == "TrainingRole" and (entry.finding or "").endswith("/runs/*")
    )
    stack = Stack(App(), "Stack")
    role = _role(stack)
    path = f"{role.node.path}/{runs.path}"
    for text, answered in (
        ("Resource::arn:aws:s3:::bucket/job/runs/*", True),
        ("Resource::arn:aws:s3:::bucket/*/runs/*", False),
        ("Resource::arn:aws:s3:::*/job/runs/*", False),
    ):
        finding = NagFinding(construct_path=path, rule="AwsSolutions-IAM5", finding=text)
        ((_, entry),) = matching(stack, [finding])
        assert (entry is not None) is answered


@pytest.mark.parametrize("first", ["packs", "acknowledgements"])
def test_an_app_with_all_packs_synthesises(tmp_path: Path, first: str) -> None:
    app = application(tmp_path)
    steps: list[Callable[[], object]] = [
        lambda: Validations.of(app).add_plugins(*packs(app)),
        lambda: acknowledge_findings(app),
    ]
    for step in steps if first == "packs" else reversed(steps):
        step()
    app.synth()
    assert nag_findings(app, packs(app)) == []


def test_without_acknowledgements_it_does_not(tmp_path: Path) -> None:
    app = application(tmp_path)
    pack: NagPack = AwsSolutionsChecks(app)
    Validations.of(app).add_plugins(pack)
    with pytest.raises(RuntimeError, match="AwsSolutions-IAM5"):
        app.synth()


def test_constructs_of_others_are_never_acknowledged(tmp_path: Path) -> None:
    """Not even where ids and findings are the same."""
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "TrainingRole")
    s3.Bucket(stack, "Bucket")
    role = iam.Role(stack, "Role", assumed_by=iam.ServicePrincipal("sagemaker.amazonaws.com"))
    iam.Policy(
        stack,
        "Policy",
        roles=[role],
        statements=[iam.PolicyStatement(actions=["ec2:DescribeVpcs"], resources=["*"])],
    )
    app.synth()
    assert acknowledge_now(app) == []
    assert NagFinding(
        construct_path="TrainingRole/Policy/Resource",
        rule="AwsSolutions-IAM5",
        finding="Resource::*",
    ) in nag_findings(app, packs(app))


def test_findings_do_not_depend_on_who_makes_the_bucket_of_weights(tmp_path: Path) -> None:
    app = App(outdir=str(tmp_path))
    stack = Stack(app, "Stack")
    role = _role(stack, S3Prefix(bucket=s3.Bucket(stack, "Weights"), prefix="llama"))
    app.synth()
    own = [f for f in nag_findings(app, packs(app)) if f.construct_path.startswith(role.node.path)]
    assert any("llama" in (finding.finding or "") for finding in own)
    assert [finding for finding, entry in matching(app, own) if entry is None] == []


def _role(stack: Stack, weights: S3Prefix | None = None) -> TrainingRole:
    return TrainingRole(
        stack,
        "Role",
        job="job",
        checkpoint_store=CheckpointStore.from_bucket(
            s3.Bucket.from_bucket_name(stack, "Runs", "runs")
        ),
        encryption_keys=[],
        subnet=ec2.Subnet.from_subnet_id(stack, "Subnet", "subnet-1"),
        security_group=ec2.SecurityGroup.from_security_group_id(stack, "Group", "sg-1"),
        image=TrainingImage.from_uri("registry.example/image:1"),
        initial_weights=weights,
    )

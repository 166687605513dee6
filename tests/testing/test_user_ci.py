"""``cdk_blackwell.testing`` from the outside: the tests of somebody's own stack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_fsx as fsx

from cdk_blackwell import Foundation, MidModelJob, ModelShape, SmallModelJob, TrainingImage
from cdk_blackwell.testing import assert_compliant, assert_fits, jobs, plans, rendered_request

REGION = "us-west-2"


class MyStack(Stack):
    """What a user writes: two jobs on one foundation, in a stack of their own."""

    def __init__(self, scope: App, construct_id: str) -> None:
        super().__init__(scope, construct_id, env=Environment(region=REGION))
        foundation = Foundation(self, "Foundation", availability_zone="us-west-2b")
        common: dict[str, Any] = {
            "foundation": foundation,
            "dataset_prefix": "tokens/",
            "sequence_length": 8192,
            "global_batch_tokens": 1_048_576,
            "train_tokens": 10_000_000_000,
            "image": TrainingImage.from_uri(
                f"123456789012.dkr.ecr.{REGION}.amazonaws.com/team/pytorch:1.4"
            ),
            "packages_in_image": True,
            "waive_cost_ceiling": True,
        }
        self.job = SmallModelJob(
            self, "Small", model=ModelShape.preset("llama-3.2-1b"), run_id="a", **common
        )
        # Not kept in an attribute: found all the same.
        MidModelJob(
            self, "Mid", model=ModelShape.preset("llama-3.1-8b"), instance_count=2, **common
        )


@pytest.fixture
def make(tmp_path: Path) -> Callable[[], tuple[App, MyStack]]:
    def made() -> tuple[App, MyStack]:
        app = App(outdir=str(tmp_path / "out"))
        return app, MyStack(app, "Mine")

    return made


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> tuple[App, MyStack]:
    """For tests that only look."""
    app = App(outdir=str(tmp_path_factory.mktemp("out")))
    return app, MyStack(app, "Mine")


def test_the_request_is_the_controllers_with_references_as_in_the_template(
    mine: tuple[App, MyStack],
) -> None:
    _, stack = mine
    request = rendered_request(stack, stack.job)
    assert request["TrainingJobName"].startswith("Mine-Small-")
    assert request["TrainingJobName"].endswith("-a-1")
    assert request["Environment"]["CDKB_RUN_ID"] == "a"
    assert request["HyperParameters"]["tier"] == "small"
    assert list(request["RoleArn"]) == ["Fn::GetAtt"]
    assert "{{" not in str(request)


def test_a_job_is_named_by_its_path_too(mine: tuple[App, MyStack]) -> None:
    _, stack = mine
    request = rendered_request(stack, "Mid", run_id="b", attempt=3)
    assert request["ResourceConfig"]["InstanceCount"] == 2
    assert request["TrainingJobName"].endswith("-b-3")


def test_a_job_that_is_not_there_is_told_with_those_that_are(mine: tuple[App, MyStack]) -> None:
    _, stack = mine
    with pytest.raises(ValueError, match="no training job Mine/Large in stack Mine; it has: "):
        rendered_request(stack, "Large")


def test_every_job_of_an_app_has_its_plan(mine: tuple[App, MyStack]) -> None:
    app, stack = mine
    assert set(jobs(app)) == {"Mine/Small", "Mine/Mid"}
    found = plans(app)
    assert found["Mine/Small"] is stack.job.plan
    assert found["Mine/Mid"].tier == "mid"


def test_a_job_fits_with_room_to_spare_or_says_how_much_is_left(mine: tuple[App, MyStack]) -> None:
    _, stack = mine
    assert_fits(stack.job)
    with pytest.raises(AssertionError, match=r"GiB stay free, and 500\.0 GiB are asked for"):
        assert_fits(stack.job, headroom_gib=500)


def test_an_app_of_this_librarys_constructs_is_compliant(
    make: Callable[[], tuple[App, MyStack]],
) -> None:
    app, _ = make()
    assert_compliant(app, nag=True)


def test_what_breaks_a_rule_is_told_unless_it_is_accepted(
    make: Callable[[], tuple[App, MyStack]],
) -> None:
    app, stack = make()
    fsx.CfnDataRepositoryAssociation(
        stack,
        "Scratch",
        file_system_id="fs-0123456789abcdef0",
        file_system_path="/scratch",
        data_repository_path="s3://scratch",
        s3=fsx.CfnDataRepositoryAssociation.S3Property(
            auto_export_policy=fsx.CfnDataRepositoryAssociation.AutoExportPolicyProperty(
                events=["NEW", "DELETED"]
            )
        ),
    )
    with pytest.raises(AssertionError, match=r"1 problem.*\nExportDeletions: Mine, Scratch"):
        assert_compliant(app)
    assert_compliant(app, accepted={"ExportDeletions": "scratch data"})


def test_accepted_rules_that_nothing_breaks_are_told(
    make: Callable[[], tuple[App, MyStack]],
) -> None:
    app, _ = make()
    with pytest.raises(AssertionError, match="VolumeKey is accepted, but nothing breaks it"):
        assert_compliant(app, accepted={"VolumeKey": "because"})
    with pytest.raises(ValueError, match="Colour, which is no id"):
        assert_compliant(app, accepted={"Colour": "because"})

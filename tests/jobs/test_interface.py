"""What other stacks do with a job: new, or imported by its output."""

from __future__ import annotations

import json
from typing import Any

import pytest
from aws_cdk import App, Environment, Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_s3 as s3
from aws_cdk.assertions import Template

from cdk_blackwell import CheckpointStore, Foundation, ITrainingJob, SmallModelJob, TrainingJob
from tests.jobs.examples import REGION, SMALL


@pytest.fixture
def imported(stack: Stack) -> ITrainingJob:
    return TrainingJob.from_job_attributes(
        stack,
        "Theirs",
        job_name="Their-Train",
        tier="mid",
        controller_function=lambda_.Function.from_function_name(stack, "Controller", "their-fn"),
        checkpoint_store=CheckpointStore.from_bucket(
            s3.Bucket.from_bucket_name(stack, "Runs", "their-runs")
        ),
    )


def policy_of(template: Template, name: str) -> str:
    (found,) = (
        json.dumps(policy)
        for key, policy in template.find_resources("AWS::IAM::Policy").items()
        if key.startswith(name)
    )
    return found


def use(job: ITrainingJob, stack: Stack) -> tuple[str, Any]:
    """Everything another stack may do; the policy it made and a metric."""
    ci = iam.Role(stack, "Ci", assumed_by=iam.AccountRootPrincipal())
    assert job.grant_start(ci).success
    assert job.grant_read_checkpoints(ci).success
    job.on_state_change("Done", statuses=["Completed"])
    return policy_of(Template.from_stack(stack), "Ci"), job.metric("mfu")


def test_an_imported_job_is_used_as_a_new_one(stack: Stack, imported: ITrainingJob) -> None:
    policy, metric = use(imported, stack)
    assert ":function:their-fn" in policy
    assert ":s3:::their-runs/Their-Train/runs/*" in policy
    assert metric.dimensions == {"Job": "Their-Train", "Tier": "mid"}
    Template.from_stack(stack).has_resource_properties(
        "AWS::Events::Rule",
        {"EventPattern": {"detail": {"TrainingJobName": [{"prefix": "Their-Train-"}]}}},
    )


def test_a_new_job_is_used_from_another_stack(stack: Stack, foundation: Foundation) -> None:
    job = SmallModelJob(stack, "Job", foundation=foundation, **SMALL)
    app = stack.node.root
    assert isinstance(app, App)
    other = Stack(app, "Other", env=Environment(region=REGION))
    ci = iam.Role(other, "Ci", assumed_by=iam.AccountRootPrincipal())
    assert job.grant_start(ci).success
    assert job.grant_read_checkpoints(ci).success
    policy = policy_of(Template.from_stack(other), "Ci")
    assert "lambda:InvokeFunction" in policy
    assert "/Mine-Job/runs/*" in policy


def test_metrics_have_dimensions_that_outlive_a_run(stack: Stack, foundation: Foundation) -> None:
    job = SmallModelJob(stack, "Job", foundation=foundation, **SMALL)
    for metric, name in (
        (job.metric_tokens_per_second(), "TokensPerSecond"),
        (job.metric_loss(), "Loss"),
        (job.metric_mfu(), "ModelFlopsUtilization"),
    ):
        assert metric.metric_name == name
        assert metric.dimensions == {"Job": "Mine-Job", "Tier": "small"}


def test_fails_for_a_metric_that_nobody_publishes(imported: ITrainingJob) -> None:
    with pytest.raises(ValueError, match=r"'speed' is not published: give one of .*loss"):
        imported.metric("speed")


@pytest.mark.parametrize("statuses", ["Failed", ["failed"], ["Failed", "Done"]])
def test_fails_for_a_status_that_no_job_has(imported: ITrainingJob, statuses: Any) -> None:
    """A rule on it would never fire."""
    with pytest.raises(ValueError, match="give a list of some of InProgress, Completed"):
        imported.on_state_change("Done", statuses=statuses)


def test_fails_for_happenings_in_one_text(stack: Stack, foundation: Foundation) -> None:
    job = SmallModelJob(stack, "Job", foundation=foundation, **SMALL)
    failed: Any = "failed"
    with pytest.raises(ValueError, match=r"happenings is 'failed': give a list, such as"):
        job.on_run_event("Failed", happenings=failed)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("controller_function", "arn:aws:lambda:us-west-2:123456789012:function:theirs"),
        ("checkpoint_store", "their-runs"),
        ("tier", "huge"),
    ],
)
def test_fails_to_import_what_is_of_another_kind(stack: Stack, name: str, wrong: str) -> None:
    bucket = s3.Bucket.from_bucket_name(stack, "Runs", "runs")
    given: dict[str, Any] = {
        "job_name": "Theirs",
        "tier": "small",
        "controller_function": lambda_.Function.from_function_name(stack, "F", "f"),
        "checkpoint_store": CheckpointStore.from_bucket(bucket),
    }
    with pytest.raises(ValueError, match=f"^{name} "):
        TrainingJob.from_job_attributes(stack, "Theirs", **{**given, name: wrong})


def test_fails_for_a_name_that_no_job_has(stack: Stack) -> None:
    with pytest.raises(ValueError, match="'a_b' is not usable"):
        TrainingJob.from_job_attributes(
            stack,
            "Theirs",
            job_name="a_b",
            tier="small",
            controller_function=lambda_.Function.from_function_name(stack, "F", "f"),
            checkpoint_store=CheckpointStore.from_bucket(
                s3.Bucket.from_bucket_name(stack, "Runs", "runs")
            ),
        )


def test_a_job_may_be_imported_in_the_app_that_makes_it(
    stack: Stack, foundation: Foundation, imported: ITrainingJob
) -> None:
    job = SmallModelJob(stack, "Job", foundation=foundation, job_name=imported.job_name, **SMALL)
    assert job.job_name == imported.job_name

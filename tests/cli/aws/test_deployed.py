"""Jobs are found by their stack's output, and what is missing is said in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdk_blackwell.cli.errors import CommandError
from tests.cli.deployment import OUTPUT, STACK, Deployment


def test_the_only_job_of_the_region_needs_no_name(deployment: Deployment) -> None:
    deployment.stack("FoundationStack", CdkBlackwellKey="arn:aws:kms:us-west-2:1:key/a")
    said = deployment.json("runs")
    assert (said["stack"], said["job"]["job"], said["runs"]) == (STACK, "pretrain", [])


def test_of_several_jobs_one_must_be_chosen(deployment: Deployment) -> None:
    deployment.stack("Other", CdkBlackwellsecond=replace(OUTPUT, job="second"))
    error = deployment.run("runs").exception
    assert isinstance(error, CommandError)
    assert "'--stack SmallModelStack --job pretrain'" in str(error)
    assert "'--stack Other --job second'" in str(error)
    assert deployment.json("runs", "--job", "second")["stack"] == "Other"
    assert deployment.json("runs", "--stack", STACK)["job"]["job"] == "pretrain"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--stack", "Nobody"), "stack 'Nobody' is not deployed in us-west-2"),
        (("--job", "other"), "no job 'other' in region us-west-2"),
    ],
)
def test_what_is_not_there_is_named(
    deployment: Deployment, words: tuple[str, ...], message: str
) -> None:
    error = deployment.run("runs", *words).exception
    assert isinstance(error, CommandError)
    assert message in str(error)


def test_a_stack_of_an_older_version_says_to_deploy_again(deployment: Deployment) -> None:
    deployment.stack("Old", CdkBlackwellold='{"controller": "c"}')
    error = deployment.run("runs", "--stack", "Old").exception
    assert isinstance(error, CommandError)
    assert "deploy the stack again" in str(error)

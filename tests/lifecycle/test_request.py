"""The rendered CreateTrainingJob request."""

from __future__ import annotations

import json
from dataclasses import replace

import boto3
import pytest
from botocore.validate import ParamValidator

from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.request import render_request, run_spec
from cdk_blackwell.planning.contracts import TAG_STACK, training_job_name
from tests.lifecycle.fakes import STACK
from tests.lifecycle.world import definition


def test_is_valid_by_the_service_model_of_botocore() -> None:
    shape = (
        boto3.client("sagemaker", region_name="us-west-2")
        .meta.service_model.operation_model("CreateTrainingJob")
        .input_shape
    )
    request = render_request(definition(), stack_id=STACK, run_id="a", attempt=1)
    assert not ParamValidator().validate(request, shape).has_errors()


def test_replaces_placeholders_everywhere_and_leaves_none() -> None:
    request = render_request(definition(), stack_id=STACK, run_id="2027-01-15-a", attempt=3)
    assert request["TrainingJobName"] == training_job_name(
        job="pretrain", stack_id=STACK, run_id="2027-01-15-a", attempt=3
    )
    uri = "s3://checkpoints/pretrain/runs/2027-01-15-a/export/"
    assert request["OutputDataConfig"]["S3OutputPath"] == uri
    assert request["Environment"] == {"CDKB_RUN_ID": "2027-01-15-a", "CDKB_ATTEMPT": "3"}
    assert "{{" not in json.dumps(request)


def test_keeps_the_users_tags_and_sets_the_identity_once() -> None:
    job = definition()
    job.request["Tags"].append({"Key": TAG_STACK, "Value": "{{stack_id}}"})
    request = render_request(job, stack_id=STACK, run_id="a", attempt=1)
    tags = [(tag["Key"], tag["Value"]) for tag in request["Tags"]]
    assert ("team", "language") in tags
    assert tags.count((TAG_STACK, STACK)) == 1
    assert len(tags) == len({key for key, _ in tags})


def test_hyperparameters_are_the_scalars_of_the_run() -> None:
    request = render_request(definition(), stack_id=STACK, run_id="a", attempt=1)
    assert request["HyperParameters"] == run_spec(definition(), "a").hyperparameters()
    assert request["HyperParameters"]["recipe_global_batch_tokens"] == "4096"


def test_does_not_touch_the_definition() -> None:
    job = definition()
    render_request(job, stack_id=STACK, run_id="a", attempt=1)
    assert job == definition()


@pytest.mark.parametrize(
    ("run_id", "words"),
    [("a_b", "not usable"), ("x" * 25, "1-24"), ("", "not usable")],
)
def test_fails_on_a_run_id_that_cannot_be_in_a_name(run_id: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        render_request(definition(), stack_id=STACK, run_id=run_id, attempt=1)


def test_fails_on_an_unknown_placeholder_and_says_where() -> None:
    job = definition()
    job.request["Environment"]["X"] = "{{run_name}}"
    with pytest.raises(ValueError, match=r"request\.Environment\.X .*\{\{run_name\}\}"):
        render_request(job, stack_id=STACK, run_id="a", attempt=1)


def test_fails_on_a_run_the_trainer_would_refuse() -> None:
    job: JobDefinition = replace(definition(), run={**definition().run, "epochs": 3})
    with pytest.raises(ValueError, match="unknown key 'epochs'"):
        render_request(job, stack_id=STACK, run_id="a", attempt=1)

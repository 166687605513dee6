"""A subclass in another package: every extension point, and what it may not break."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from aws_cdk import Stack
from aws_cdk import aws_iam as iam
from aws_cdk import aws_sns_subscriptions as subscriptions
from aws_cdk.assertions import Template

from cdk_blackwell import (
    Foundation,
    ModelShape,
    RecipeOverrides,
    RequestInputs,
    SmallModelJob,
    TrainingJob,
    TrainingMonitoring,
)
from cdk_blackwell.compliance.service_model import check_training_request
from cdk_blackwell.jobs.request import s3_channel
from tests.jobs.examples import SMALL, channels_of, definition_of, request_of


class Pretraining(SmallModelJob):
    """What a platform team would make of it."""

    def check_model(self, model: ModelShape) -> None:
        if model.vocab_size > 200_000:
            raise ValueError(f"{model.name} has too large a vocabulary for our tokenizer")

    def recipe(self, overrides: RecipeOverrides) -> RecipeOverrides:
        return replace(overrides, seed=7)

    def monitoring_of(self, *args: Any, **props: Any) -> TrainingMonitoring:
        monitoring = super().monitoring_of(*args, **props)
        monitoring.topic.add_subscription(subscriptions.EmailSubscription("ml@example.com"))
        return monitoring

    def policy_statements(self) -> Sequence[iam.PolicyStatement]:
        return [iam.PolicyStatement(actions=["s3:GetObject"], resources=["arn:aws:s3:::vocab/*"])]

    def container_environment(self) -> dict[str, str]:
        return {**super().container_environment(), "TEAM": "speech"}

    def channels(self) -> list[dict[str, Any]]:
        return [*super().channels(), s3_channel("vocabulary", "s3://vocab/v1/")]

    def entrypoint(self) -> tuple[Sequence[str], Sequence[str]]:
        return ("/usr/bin/python3",), ("/opt/ours/start.py", "--run", "{{run_id}}")

    def request_template(self, inputs: RequestInputs) -> dict[str, Any]:
        return {
            **super().request_template(inputs),
            "InfraCheckConfig": {"EnableInfraCheck": True},
        }


@pytest.fixture
def request_(stack: Stack, foundation: Foundation) -> dict[str, Any]:
    Pretraining(stack, "Job", foundation=foundation, environment={"A": "1"}, **SMALL)
    return request_of(stack)


def test_every_extension_point_reaches_the_request(request_: dict[str, Any], stack: Stack) -> None:
    assert check_training_request(request_) == []
    assert request_["Environment"]["TEAM"] == "speech"
    assert request_["Environment"]["A"] == "1"
    channel = channels_of(request_)["vocabulary"]
    assert channel["S3DataSource"]["S3Uri"] == "s3://vocab/v1/"
    algorithm = request_["AlgorithmSpecification"]
    assert algorithm["ContainerEntrypoint"] == ["/usr/bin/python3"]
    assert algorithm["ContainerArguments"] == ["/opt/ours/start.py", "--run", "run-1"]
    assert request_["InfraCheckConfig"] == {"EnableInfraCheck": True}
    assert definition_of(stack).run["recipe"]["seed"] == 7
    template = Template.from_stack(stack)
    template.resource_count_is("AWS::SNS::Subscription", 1)
    assert "arn:aws:s3:::vocab/*" in str(template.find_resources("AWS::IAM::Policy"))


def test_an_own_check_of_the_model_comes_first(stack: Stack, foundation: Foundation) -> None:
    wide = replace(SMALL["model"], vocab_size=256_000)
    with pytest.raises(ValueError, match="too large a vocabulary"):
        Pretraining(stack, "Job", foundation=foundation, **{**SMALL, "model": wide})


@pytest.mark.parametrize(
    ("name", "words"),
    [("HF_TOKEN", "looks like a secret"), ("CDKB_RUN_ID", "set by this library")],
)
def test_fails_when_a_subclass_slips_into_the_environment_what_nobody_may(
    stack: Stack, foundation: Foundation, name: str, words: str
) -> None:
    class Careless(SmallModelJob):
        def container_environment(self) -> dict[str, str]:
            return {name: "x"}

    with pytest.raises(ValueError, match=words):
        Careless(stack, "Job", foundation=foundation, **SMALL)


def test_fails_when_a_subclass_breaks_a_limit_of_sagemaker(
    stack: Stack, foundation: Foundation
) -> None:
    class Long(SmallModelJob):
        def entrypoint(self) -> tuple[Sequence[str], Sequence[str]]:
            return ("x" * 257,), ()

    with pytest.raises(ValueError, match=r"ContainerEntrypoint\[0\] is '257 characters'"):
        Long(stack, "Job", foundation=foundation, **SMALL)


def test_training_job_itself_is_not_used(stack: Stack, foundation: Foundation) -> None:
    with pytest.raises(TypeError, match="use SmallModelJob, MidModelJob or LargeShardedJob"):
        TrainingJob(stack, "Job", foundation=foundation, **SMALL)


POINTS = {
    "recipe": "RecipeOverrides",
    "monitoring_of": "TrainingMonitoring",
    "policy_statements": "Sequence",
    "container_environment": "Mapping",
    "channels": "Sequence",
    "entrypoint": "tuple",
    "request_template": "dict",
}


@pytest.mark.parametrize(("point", "kind"), POINTS.items())
def test_fails_where_a_method_forgets_to_return(
    stack: Stack, foundation: Foundation, point: str, kind: str
) -> None:
    forgetful = type("Forgetful", (SmallModelJob,), {point: lambda self, *args, **props: None})
    says = rf"^{point}\(\) of the job's class returned None: return a {kind}, as super\(\)"
    with pytest.raises(ValueError, match=says):
        forgetful(stack, "Job", foundation=foundation, **SMALL)


@pytest.mark.parametrize("commands", [("python3", ()), ((), "--run"), "python3"])
def test_fails_on_a_command_that_would_be_taken_letter_by_letter(
    stack: Stack, foundation: Foundation, commands: Any
) -> None:
    careless = type("Careless", (SmallModelJob,), {"entrypoint": lambda self: commands})
    with pytest.raises(ValueError, match=r"^entrypoint\(\) of the job's class returned"):
        careless(stack, "Job", foundation=foundation, **SMALL)


def test_fails_on_a_channel_of_the_librarys_own_name(stack: Stack, foundation: Foundation) -> None:
    more = {"channels": lambda self: [s3_channel("config", "s3://theirs/config/")]}
    double = type("Double", (SmallModelJob,), more)
    with pytest.raises(ValueError, match="channel 'config' is there twice: code, config"):
        double(stack, "Job", foundation=foundation, **SMALL)

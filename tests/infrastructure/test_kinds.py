"""A value of the wrong kind, or known only at deploy, is one clear line, whatever the parameter."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
from aws_cdk import App, CfnParameter, Duration, Environment, Stack
from aws_cdk import aws_ec2 as ec2
from aws_cdk import aws_s3 as s3

from cdk_blackwell import (
    AlarmThresholds,
    Capacity,
    CheckpointStore,
    Foundation,
    ModelShape,
    S3Prefix,
    SharedFileSystem,
    SmallModelJob,
    TrainingJob,
    TrainingMonitoring,
    TrainingNetwork,
    TrainingRole,
)
from cdk_blackwell.infrastructure import kinds

PUBLIC = (
    TrainingJob,
    Foundation,
    TrainingNetwork,
    SharedFileSystem,
    CheckpointStore,
    TrainingRole,
    TrainingMonitoring,
)
COMMON: dict[str, Any] = {
    "model": ModelShape.preset("llama-3.2-1b"),
    "dataset_prefix": "tokens",
    "sequence_length": 8192,
    "packages_in_image": True,
    "waive_cost_ceiling": True,
}


def parameters(construct: type[Any]) -> Iterator[str]:
    """Every parameter that the constructor has, beside its place in the tree."""
    names = list(inspect.signature(construct.__init__).parameters)
    yield from names[3:]


EVERY = [
    pytest.param(construct, name, id=f"{construct.__name__}-{name}")
    for construct in PUBLIC
    for name in parameters(construct)
]
OF_A_JOB = sorted(parameters(TrainingJob))


@pytest.fixture(scope="module")
def stack() -> Stack:
    return Stack(App(), "Stack", env=Environment(region="us-west-2"))


def refused(construct: type[Any], **given: Any) -> str:
    """What the kinds of a constructor's parameters say of one value."""
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - callers match the text
        kinds.check_kinds(construct.__init__, given)
    text = str(caught.value)
    assert "\n" not in text
    return text


def make(**changed: Any) -> None:
    stack = Stack(App(), "Stack", env=Environment(region="us-west-2"))
    SmallModelJob(stack, "Job", **COMMON | changed)


@pytest.mark.parametrize(("construct", "name"), EVERY)
def test_no_parameter_takes_just_anything(construct: type[Any], name: str) -> None:
    text = refused(construct, **{name: object()})
    assert text.startswith(name)
    assert "such as " in text or "give one of" in text


@pytest.mark.parametrize("construct", PUBLIC)
def test_what_is_not_given_is_of_no_kind(construct: type[Any]) -> None:
    kinds.check_kinds(construct.__init__, dict.fromkeys(parameters(construct)))


@pytest.mark.parametrize("name", OF_A_JOB)
def test_a_job_refuses_it_before_anything_is_made(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} (is|<object)"):
        make(**{name: object()})


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        # Any text is true: the ceiling would be gone.
        ("waive_cost_ceiling", "false"),
        ("export", "no"),
        ("packages_in_image", 1),
        ("instance_count", True),
        ("instance_count", 2.0),
        ("hourly_price_usd", "98.84"),
        ("hourly_price_usd", True),
        ("validation_interval_steps", "500"),
        ("max_runtime", 3600),
        ("wheelhouse", 5),
        ("environment", ["A=b"]),
    ],
)
def test_what_python_would_take_for_another_value(name: str, wrong: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is {wrong!r}; give a ".replace("[", r"\[")):
        make(**{name: wrong})


@pytest.mark.parametrize("name", ["vpc", "subnet", "role", "topic", "security_group"])
def test_an_id_in_place_of_a_construct_is_refused_with_the_import(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is 'id-1', which is no I\w+: give one, such"):
        make(**{name: "id-1"})


def test_a_construct_of_another_kind_is_refused(stack: Stack) -> None:
    vpc = ec2.Vpc.from_vpc_attributes(stack, "V", vpc_id="v-1", availability_zones=["us-west-2a"])
    bucket = s3.Bucket.from_bucket_name(stack, "B", "runs")
    for name, given, kind in (
        ("security_group", vpc, "ISecurityGroup"),
        ("vpc", bucket, "IVpc"),
        ("checkpoint_store", bucket, "ICheckpointStore"),
        ("foundation", stack, "IFoundation"),
        ("encryption_key", bucket, "IKey"),
    ):
        assert f"{name} is a " in (text := refused(TrainingJob, **{name: given}))
        assert f"which is no {kind}" in text


NUMBERS = ("sequence_length", "instance_count", "hourly_price_usd", "max_cost_usd", "max_attempts")


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_known_only_at_deploy_is_called_so(stack: Stack, name: str) -> None:
    number = CfnParameter(stack, f"P{name}", type="Number").value_as_number
    assert refused(TrainingJob, **{name: number}).startswith(f"{name} is a CDK token")


@pytest.mark.parametrize("name", ["dataset_prefix", "run_id", "job_name", "wheelhouse"])
def test_a_text_known_only_at_deploy_is_called_so(stack: Stack, name: str) -> None:
    text = CfnParameter(stack, f"P{name}").value_as_string
    assert refused(TrainingJob, **{name: text}).startswith(f"{name} is a CDK token")


def test_a_time_known_only_at_deploy_is_called_so(stack: Stack) -> None:
    number = CfnParameter(stack, "Hours", type="Number").value_as_number
    for duration in (Duration.hours(number), Duration.seconds(number)):
        assert "is a CDK token" in refused(TrainingJob, max_runtime=duration)
        for make_capacity in (
            lambda given=duration: Capacity.on_demand(max_pending=given),
            lambda given=duration: Capacity.on_demand(keep_alive=given),
            lambda given=duration: Capacity.spot(max_wait=given),
        ):
            with pytest.raises(ValueError, match=r"^(max_pending|keep_alive|max_wait) is a CDK"):
                make_capacity()


def test_times_are_whole_seconds() -> None:
    with pytest.raises(ValueError, match=r"^max_runtime is 90\.5 seconds; give whole seconds"):
        kinds.whole_seconds("max_runtime", Duration.millis(90_500), None)
    assert kinds.whole_seconds("max_runtime", Duration.millis(90_000), None) == 90
    assert kinds.whole_seconds("max_runtime", None, 60) == 60


def test_values_of_other_classes_say_the_same(stack: Stack) -> None:
    number = CfnParameter(stack, "Number", type="Number").value_as_number
    text = CfnParameter(stack, "Text").value_as_string
    bucket = s3.Bucket.from_bucket_name(stack, "Weights", "weights")
    for make_value in (
        lambda: AlarmThresholds(no_progress_minutes=number),
        lambda: Capacity.training_plan(text, fee_usd=number),
        lambda: S3Prefix(bucket=bucket, prefix=text),
    ):
        with pytest.raises(ValueError, match="is a CDK token"):
            make_value()


def test_a_zone_may_be_known_only_at_deploy(stack: Stack) -> None:
    text = CfnParameter(stack, "Zone").value_as_string
    kinds.check_kinds(
        Foundation.__init__, {"availability_zone": text}, tokens=("availability_zone",)
    )


def test_only_tokens_are_taken_for_tokens() -> None:
    for plain in ("a", "${Token}", -1, -1.5e100, 10**9, True, None, Duration.days(1)):
        assert not kinds.is_token(plain)


def test_an_empty_name_is_not_taken_for_none() -> None:
    # Refused when the job is named, which is before its surroundings are looked for.
    with pytest.raises(ValueError, match="job name '' is not usable"):
        make(job_name="")


@pytest.mark.parametrize("wrong", [5, "1 hour"])
def test_times_of_capacity_are_durations(wrong: Any) -> None:
    for make_capacity in (
        lambda: Capacity.on_demand(max_pending=wrong),
        lambda: Capacity.spot(max_wait=wrong),
    ):
        with pytest.raises(ValueError, match="give a Duration, such as"):
            make_capacity()
    assert Capacity.spot(max_wait=Duration.hours(1)).max_wait_seconds == 3600

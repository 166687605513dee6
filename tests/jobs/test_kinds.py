"""A value of the wrong kind is one clear line at synth, whatever the parameter."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from aws_cdk import App, Duration, Environment, Stack

from cdk_blackwell import Capacity, ModelShape, SmallModelJob, TrainingJob
from cdk_blackwell.jobs.kinds import CONSTRUCTS, VALUES

PARAMETERS = set(inspect.signature(TrainingJob.__init__).parameters)
COMMON: dict[str, Any] = {
    "model": ModelShape.preset("llama-3.2-1b"),
    "dataset_prefix": "tokens",
    "sequence_length": 8192,
    "packages_in_image": True,
    "waive_cost_ceiling": True,
}


def make(**changed: Any) -> None:
    stack = Stack(App(), "Stack", env=Environment(region="us-west-2"))
    SmallModelJob(stack, "Job", **COMMON | changed)


def test_every_name_is_one_of_a_parameter() -> None:
    assert VALUES.keys() | CONSTRUCTS.keys() <= PARAMETERS


@pytest.mark.parametrize("name", sorted(VALUES))
@pytest.mark.parametrize("value", [3.5, ["a"], object()], ids=["number", "list", "object"])
def test_a_value_of_another_kind_is_refused_with_an_example(name: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is .*; give a .*, such as "):
        make(**{name: value})


@pytest.mark.parametrize("name", sorted(CONSTRUCTS))
def test_an_id_in_place_of_a_construct_is_refused_with_the_import(name: str) -> None:
    with pytest.raises(ValueError, match=rf"^{name} is 'id-1', which is no construct: give one"):
        make(**{name: "id-1"})


def test_an_empty_name_is_not_taken_for_none() -> None:
    with pytest.raises(ValueError, match="job_name is empty"):
        make(job_name="")


@pytest.mark.parametrize("wrong", [5, "1 hour"])
def test_times_of_capacity_are_durations(wrong: Any) -> None:
    for make_capacity in (
        lambda: Capacity.on_demand(max_pending=wrong),
        lambda: Capacity.spot(max_wait=wrong),
    ):
        with pytest.raises(ValueError, match="is no Duration"):
            make_capacity()
    assert Capacity.spot(max_wait=Duration.hours(1)).max_wait_seconds == 3600

"""Where instances come from: what each kind asks SageMaker for, and what cannot be combined."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Duration
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell import Capacity
from cdk_blackwell.infrastructure.capacity import PLAN_INSTANCE_COUNTS

PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p"


@pytest.mark.parametrize("count", [1, 2, 4, 8, 16, 32, 64])
def test_a_training_plan_takes_powers_of_two(count: int) -> None:
    plan = Capacity.training_plan("arn:aws:sagemaker:us-west-2:123456789012:training-plan/p")
    plan.check(instance_count=count, region="us-west-2")


@pytest.mark.parametrize("count", [3, 6, 128])
def test_a_training_plan_refuses_other_counts(count: int) -> None:
    plan = Capacity.training_plan("arn:aws:sagemaker:us-west-2:123456789012:training-plan/p")
    with pytest.raises(ValueError, match=f"instance_count {count} .* 1, 2, 4, 8, 16, 32, 64"):
        plan.check(instance_count=count, region="us-west-2")


def test_waiting_is_bounded_as_sagemaker_bounds_it() -> None:
    assert Capacity.on_demand().max_pending_seconds == 43_200
    with pytest.raises(ValueError, match="1800 s"):
        Capacity.on_demand(max_pending=Duration.minutes(29))
    with pytest.raises(ValueError, match="2419200 s"):
        Capacity.on_demand(max_pending=Duration.days(29))


def test_on_demand_asks_for_a_deadline_and_nothing_else() -> None:
    capacity = Capacity.on_demand(max_pending=Duration.hours(1))
    assert capacity.stopping_condition() == {"MaxPendingTimeInSeconds": 3600}
    assert capacity.resource_config() == {}
    assert capacity.request_members() == {}


def test_a_warm_pool_keeps_instances_for_the_next_job() -> None:
    capacity = Capacity.on_demand(keep_alive=Duration.minutes(30))
    assert capacity.resource_config() == {"KeepAlivePeriodInSeconds": 1800}


def test_spot_waits_as_long_as_it_was_told_and_has_no_deadline_of_its_own() -> None:
    capacity = Capacity.spot(max_wait=Duration.days(2))
    capacity.check(instance_count=1, region="us-west-2", max_runtime_seconds=86_400)
    assert capacity.request_members() == {"EnableManagedSpotTraining": True}
    assert capacity.stopping_condition() == {"MaxWaitTimeInSeconds": 172_800}


def test_a_training_plan_is_named_in_the_request() -> None:
    assert Capacity.training_plan(PLAN).resource_config() == {"TrainingPlanArn": PLAN}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "spot", "max_wait_seconds": 1, "keep_alive_seconds": 60}, "Capacity.on_demand"),
        ({"kind": "spot", "max_wait_seconds": 1, "training_plan_arn": PLAN}, "training_plan"),
        (
            {"kind": "training_plan", "training_plan_arn": PLAN, "keep_alive_seconds": 60},
            "keep_alive_seconds 60 cannot be combined with capacity training_plan",
        ),
        ({"kind": "on_demand", "max_pending_seconds": 3600, "max_wait_seconds": 9}, "spot"),
        ({"kind": "training_plan"}, "needs training_plan_arn"),
        ({"kind": "spot"}, "needs max_wait_seconds"),
        ({"kind": "on_demand"}, "needs max_pending_seconds"),
    ],
)
def test_fails_when_one_kind_is_given_what_belongs_to_another(
    values: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        Capacity(**values)


def test_fails_when_a_spot_job_may_run_longer_than_it_may_wait() -> None:
    capacity = Capacity.spot(max_wait=Duration.hours(1))
    with pytest.raises(ValueError, match=r"max_wait of 3600 s.*give 7200 s \(max_runtime\)"):
        capacity.check(instance_count=1, region="us-west-2", max_runtime_seconds=7200)


def test_fails_when_a_spot_job_has_checkpoints_that_sagemaker_does_not_sync() -> None:
    with pytest.raises(ValueError, match="managed spot needs SageMaker's own sync"):
        Capacity.spot(max_wait=Duration.days(2)).check(
            instance_count=2,
            region="us-west-2",
            max_runtime_seconds=86_400,
            checkpoints_in_s3=False,
        )


@pytest.mark.parametrize("hours", [7, 100])
def test_fails_when_a_warm_pool_stays_longer_than_sagemaker_lets_it(hours: int) -> None:
    with pytest.raises(ValueError, match=r"keep_alive of .* up to 21600 s"):
        Capacity.on_demand(keep_alive=Duration.hours(hours))


@pytest.mark.parametrize("count", [0, -1, 65])
def test_fails_outside_the_instances_a_job_can_have(count: int) -> None:
    with pytest.raises(ValueError, match=f"instance_count {count} is not allowed"):
        Capacity.on_demand().check(instance_count=count, region="us-west-2")


def test_fails_when_the_plan_is_in_another_region_and_never_judges_a_token() -> None:
    with pytest.raises(ValueError, match="plan is in us-west-2, the stack in us-east-1"):
        Capacity.training_plan(PLAN).check(instance_count=1, region="us-east-1")
    Capacity.training_plan(PLAN).check(instance_count=1, region="${Token[AWS.Region.4]}")
    Capacity.training_plan("${Token[Plan.4]}").check(instance_count=1, region="us-east-1")


@pytest.mark.parametrize("arn", ["cr-0123", PLAN.replace("training-plan", "cluster"), ""])
def test_fails_for_what_is_no_training_plan(arn: str) -> None:
    with pytest.raises(ValueError, match="give its ARN"):
        Capacity.training_plan(arn)


@pytest.mark.parametrize("fee", [0, -1, float("nan")])
def test_fails_for_a_fee_that_is_none(fee: float) -> None:
    with pytest.raises(ValueError, match="fee_usd"):
        Capacity.training_plan(PLAN, fee_usd=fee)


def test_the_quota_of_instances_is_told_before_the_launch() -> None:
    (warning,) = Capacity.on_demand().warnings(instance_count=21)
    assert "raise that quota" in warning
    assert Capacity.on_demand().warnings(instance_count=20) == []
    assert Capacity.training_plan(PLAN).warnings(instance_count=64) == []


@given(st.integers(-5, 200))
def test_a_plan_is_refused_exactly_outside_its_counts(count: int) -> None:
    plan = Capacity.training_plan(PLAN)
    if count in PLAN_INSTANCE_COUNTS:
        plan.check(instance_count=count, region="us-west-2")
    else:
        with pytest.raises(ValueError, match=f"instance_count {count} "):
            plan.check(instance_count=count, region="us-west-2")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"kind": "reserved"}, "kind 'reserved' is not allowed: give one of on_demand, training"),
        ({"kind": "on_demand", "max_pending_seconds": 1800.5}, "give a whole number"),
        ({"kind": "spot", "max_wait_seconds": "3600"}, "give a whole number"),
    ],
)
def test_fails_for_values_that_no_factory_gives(values: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Capacity(**values)

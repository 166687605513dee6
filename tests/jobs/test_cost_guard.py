"""What a launch costs at most, and what is refused for it."""

from __future__ import annotations

from typing import Any

import pytest
from aws_cdk import Duration, Stack
from aws_cdk.assertions import Annotations, Match
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell import Capacity, DoesNotFitError, Foundation, SmallModelJob
from cdk_blackwell.jobs.cost_guard import CostGuard
from tests.jobs.examples import PLAN, SMALL

ON_DEMAND = Capacity.on_demand()


def guard(**values: Any) -> CostGuard:
    """Two instances at 100 USD, an hour, one attempt: 100 x 2 x (60 + 2 + 30) / 60 minutes."""
    return CostGuard(
        **{
            "capacity": ON_DEMAND,
            "instance_count": 2,
            "max_runtime_seconds": 3600,
            "max_attempts": 1,
            "hourly_price_usd": 100.0,
            "max_cost_usd": 1000.0,
            "waived": False,
            **values,
        }
    )


def test_the_worst_case_counts_the_stop_and_the_upload() -> None:
    assert guard().worst_usd_per_attempt == pytest.approx(200 * (3600 + 120 + 1800) / 3600)


def test_a_warm_pool_is_billed_too() -> None:
    kept = guard(capacity=Capacity.on_demand(keep_alive=Duration.hours(1)))
    assert kept.worst_usd_per_attempt == pytest.approx(200 * (3600 + 120 + 1800 + 3600) / 3600)
    assert "60 minutes of keep-alive" in kept.text()


def test_every_attempt_counts() -> None:
    with pytest.raises(DoesNotFitError, match=r"can cost 1,226\.67 USD.*max_cost_usd 1,000\.00"):
        guard(max_attempts=4)


@pytest.mark.parametrize(
    ("left_out", "named"),
    [
        ({"max_cost_usd": None}, "max_cost_usd is missing"),
        ({"hourly_price_usd": None}, "hourly_price_usd is missing"),
        ({"max_runtime_seconds": None}, "max_runtime is missing"),
        (
            {"max_runtime_seconds": None, "hourly_price_usd": None, "max_cost_usd": None},
            "max_runtime and hourly_price_usd and max_cost_usd are missing",
        ),
    ],
)
def test_a_ceiling_is_asked_for_with_what_it_needs(left_out: dict[str, None], named: str) -> None:
    with pytest.raises(ValueError, match=rf"{named}.*or set waive_cost_ceiling"):
        guard(**left_out)


def test_it_can_be_waived_but_not_both() -> None:
    waived = guard(waived=True, max_cost_usd=None, max_runtime_seconds=None)
    assert waived.runtime_seconds == 86_400
    assert "the ceiling is waived" in waived.text()
    with pytest.raises(ValueError, match="both given"):
        guard(waived=True)


def test_without_a_price_it_says_what_is_held_and_that_the_cost_is_unknown() -> None:
    text = guard(waived=True, max_cost_usd=None, hourly_price_usd=None).text()
    assert "is unknown" in text
    assert "2 instance(s) for up to 1 attempts of 1.0 hours" in text


def test_under_a_training_plan_a_launch_adds_nothing_and_the_fee_is_shown() -> None:
    plan = guard(capacity=Capacity.training_plan(PLAN, fee_usd=900), hourly_price_usd=None)
    assert plan.worst_usd_per_attempt == plan.usd_per_hour == 0
    assert "900.00 USD, whether jobs run or not" in plan.text()
    assert plan.warnings() == []


def test_the_plans_fee_is_held_against_the_ceiling() -> None:
    with pytest.raises(DoesNotFitError, match=r"plan costs 1,500\.00 USD"):
        guard(capacity=Capacity.training_plan(PLAN, fee_usd=1500))


def test_a_ceiling_that_cannot_be_checked_is_told() -> None:
    (warning,) = guard(capacity=Capacity.training_plan(PLAN)).warnings()
    assert "max_cost_usd 1,000.00 is not checked" in warning
    assert "fee_usd" in warning


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"max_runtime_seconds": 59}, "59 s is not allowed: give 60 s to 2419200 s"),
        ({"max_runtime_seconds": 28 * 86_400 + 1}, "28 days"),
        ({"max_attempts": 0}, "max_attempts 0 is not allowed: give 1 to 999"),
        ({"hourly_price_usd": 0}, "hourly_price_usd 0 is not allowed"),
        ({"hourly_price_usd": float("nan")}, "hourly_price_usd nan is not allowed"),
        ({"max_cost_usd": -1}, "max_cost_usd -1 is not allowed"),
        ({"max_cost_usd": float("inf")}, "max_cost_usd inf is not allowed"),
    ],
)
def test_fails_outside_what_can_be(values: dict[str, float], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        guard(**values)


@given(
    instances=st.integers(1, 64),
    hours=st.floats(0.1, 600),
    attempts=st.integers(1, 999),
    price=st.floats(0.01, 10_000),
    ceiling=st.floats(1, 1e9),
)
def test_what_passes_can_never_cost_more_than_the_ceiling(
    instances: int, hours: float, attempts: int, price: float, ceiling: float
) -> None:
    try:
        guard(
            instance_count=instances,
            max_runtime_seconds=round(hours * 3600),
            max_attempts=attempts,
            hourly_price_usd=price,
            max_cost_usd=ceiling,
        )
    except DoesNotFitError:
        return
    run_time_alone = instances * round(hours * 3600) / 3600 * price * attempts
    assert run_time_alone < ceiling


def test_synth_says_what_a_launch_costs(stack: Stack, foundation: Foundation) -> None:
    props = {key: value for key, value in SMALL.items() if key != "waive_cost_ceiling"}
    SmallModelJob(
        stack,
        "Job",
        foundation=foundation,
        max_runtime=Duration.hours(24),
        hourly_price_usd=98.84,
        max_cost_usd=10_000,
        **props,
    )
    words = r"98\.84 USD per hour.*at most 7,274\.62 USD: 3 attempts of up to 24\.0 hours"
    found = Annotations.from_stack(stack).find_info("*", Match.string_like_regexp(words))
    assert len(found) == 1


def test_fails_without_a_ceiling(stack: Stack, foundation: Foundation) -> None:
    """agentcore-public-stack PR#1024: all spend lost to a run nobody had bounded."""
    props = {key: value for key, value in SMALL.items() if key != "waive_cost_ceiling"}
    with pytest.raises(ValueError, match="max_cost_usd are missing"):
        SmallModelJob(stack, "Job", foundation=foundation, **props)


@pytest.mark.parametrize(
    ("tokens", "hours", "advice"),
    [
        (20_000_000_000, 10, r"give max_runtime of 16 hours, fewer train_tokens or more instances"),
        (2_000_000_000_000, 600, r"give fewer train_tokens or more instances .*at most 672 hours"),
    ],
)
def test_a_run_that_max_runtime_would_cut_off_is_told(
    stack: Stack, foundation: Foundation, tokens: int, hours: int, advice: str
) -> None:
    """No attempt goes on where max_runtime ended one, so what was paid would be lost."""
    props = {**SMALL, "train_tokens": tokens, "max_runtime": Duration.hours(hours)}
    SmallModelJob(stack, "Job", foundation=foundation, **props)
    words = Match.string_like_regexp(
        rf"{tokens:,} tokens are predicted to take .* ends the run after {hours}.0: {advice}"
    )
    assert len(Annotations.from_stack(stack).find_warning("*", words)) == 1


def test_a_run_with_time_enough_is_not_warned_of(stack: Stack, foundation: Foundation) -> None:
    props = {**SMALL, "train_tokens": 20_000_000_000, "max_runtime": Duration.hours(14)}
    SmallModelJob(stack, "Job", foundation=foundation, **props)
    words = Match.string_like_regexp("are predicted to take")
    assert Annotations.from_stack(stack).find_warning("*", words) == []

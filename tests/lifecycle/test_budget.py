"""What was spent and what is committed never pass the ceiling, to the cent and at every edge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.lifecycle.handler.budget import (
    MINIMUM_ATTEMPT_SECONDS,
    affordable_seconds,
    overhead_seconds,
    run_time_limit,
)
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from tests.lifecycle.world import definition

REQUEST = definition().request


def job(
    *, price: float, ceiling: float | None, instances: int = 1, keep_alive: int = 0
) -> JobDefinition:
    resources = {**REQUEST["ResourceConfig"], "InstanceCount": instances}
    if keep_alive:
        resources["KeepAlivePeriodInSeconds"] = keep_alive
    return definition(
        request={**REQUEST, "ResourceConfig": resources},
        hourly_price_usd=price,
        max_cost_usd=ceiling,
        instance_count=instances,
    )


@given(
    price=st.floats(0.01, 500),
    ceiling=st.floats(0.01, 1e6),
    instances=st.integers(1, 64),
    keep_alive=st.sampled_from([0, 600, 3_600]),
    billed=st.lists(st.integers(0, 90_000), max_size=6),
)
def test_spent_and_committed_stay_below_the_ceiling(
    price: float, ceiling: float, instances: int, keep_alive: int, billed: list[int]
) -> None:
    made = job(price=price, ceiling=ceiling, instances=instances, keep_alive=keep_alive)
    seconds = affordable_seconds(made, billed)
    assert seconds <= run_time_limit(made)
    if seconds <= 0:
        return
    kept = sum(keep_alive for each in billed if each)
    total = sum(billed) + kept + seconds + overhead_seconds(made)
    assert total / 3600 * instances * price <= ceiling * (1 + 1e-9)


@pytest.mark.parametrize(
    ("hours", "affordable"),
    [
        # 120 s to stop and 1,800 s to upload come first.
        (1_920 / 3600, 0),
        ((1_920 + 60) / 3600, 60),
        ((1_920 + MINIMUM_ATTEMPT_SECONDS) / 3600, MINIMUM_ATTEMPT_SECONDS),
        (0.5, -120),
        (1_000, 86_400),
    ],
    ids=["nothing left", "less than a stop", "just enough", "less than none", "plenty"],
)
def test_the_edges(hours: float, affordable: int) -> None:
    # A tenth of a second more than exact, which rounding must not turn into a second less.
    made = job(price=100.0, ceiling=100.0 * (hours + 0.1 / 3600))
    assert affordable_seconds(made, ()) == affordable


@pytest.mark.parametrize("price", [0.0, 50.0])
def test_without_a_price_or_a_ceiling_the_requests_own_limit_stands(price: float) -> None:
    ceiling = 1.0 if price == 0 else None
    assert affordable_seconds(job(price=price, ceiling=ceiling), (80_000,)) == 86_400

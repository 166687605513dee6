"""Time, money, checkpoints, failures and storage."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.planning.cost import (
    checkpoint_bytes,
    estimate_cost,
    worst_case_usd,
)
from cdk_blackwell.planning.intervals import (
    checkpoint_interval_seconds,
    expected_loss,
    mean_seconds_between_failures,
)
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.storage_needs import THROUGHPUTS_PER_TIB, storage_needs

LLAMA_8B = ModelShape.preset("llama-3.1-8b")
RUN: dict[str, Any] = {
    "model": LLAMA_8B,
    "train_tokens": 360_000_000_000,
    "tokens_per_second": 1e6,
    "instance_count": 8,
}
MODELS = st.sampled_from([ModelShape.preset(name) for name in ModelShape.preset_names()])


def test_hours_days_and_money_follow_from_the_speed() -> None:
    cost = estimate_cost(**RUN, hourly_price_usd=100.0)
    assert cost.hours == pytest.approx(100)
    assert cost.days == pytest.approx(100 / 24)
    assert cost.instance_hours == pytest.approx(800)
    assert cost.usd == pytest.approx(80_000)


def test_without_a_price_no_money_is_invented() -> None:
    cost = estimate_cost(**RUN, hourly_price_usd=None)
    assert (cost.usd, cost.lost_usd, cost.total_usd, cost.hourly_price_usd) == (None,) * 4


def test_a_checkpoint_holds_weights_and_both_moments_in_fp32() -> None:
    assert checkpoint_bytes(LLAMA_8B) == 12 * 8_030_261_248
    cost = estimate_cost(**RUN, hourly_price_usd=None)
    assert cost.checkpoint_gib == pytest.approx(89.75, abs=0.01)


def test_64_gpus_with_5_seconds_blocked_want_an_hour_and_a_half_and_get_the_cap() -> None:
    uncapped = (2 * 5 * mean_seconds_between_failures(64)) ** 0.5
    assert uncapped / 3600 == pytest.approx(1.5, abs=0.05)
    assert checkpoint_interval_seconds(64) == 3600
    assert checkpoint_interval_seconds(512) == pytest.approx((2 * 5 * 50_000 * 3600 / 512) ** 0.5)


def test_a_checkpoint_is_complete_before_the_next_begins() -> None:
    assert checkpoint_interval_seconds(512, write_seconds=5000.0) == 5000


def test_the_interval_loses_least() -> None:
    """Young's formula is the minimum of what blocking and repeated work cost together."""
    best = checkpoint_interval_seconds(512)

    def loss(interval: float) -> float:
        return expected_loss(hours=1000, gpus=512, interval_seconds=interval).hours

    assert loss(best) < min(loss(best * 0.7), loss(best * 1.4))


def test_failures_lose_half_an_interval_and_a_restart_each() -> None:
    cost = estimate_cost(**RUN, hourly_price_usd=100.0)
    assert cost.expected_failures == pytest.approx(100 * 64 / 50_000)
    lost = cost.expected_failures * (1800 + 900) / 3600 + 100 * 5 / 3600
    assert cost.lost_hours == pytest.approx(lost)
    assert cost.lost_usd == pytest.approx(lost * 800)
    assert cost.total_hours == pytest.approx(100 + lost)
    assert cost.total_usd == pytest.approx(80_000 + lost * 800)


def test_the_worst_case_counts_grace_and_upload() -> None:
    assert worst_case_usd(
        max_runtime_seconds=3600, instance_count=2, hourly_price_usd=100.0, upload_seconds=0
    ) == pytest.approx(200.0 * (1 + 120 / 3600))


def test_a_small_model_needs_the_smallest_file_system() -> None:
    needs = storage_needs(ModelShape.preset("llama-3.2-1b"), instance_count=1)
    assert (needs.capacity_gib, needs.throughput_per_tib) == (1200, 125)


def test_storage_holds_the_kept_checkpoints_one_more_the_export_and_the_dataset() -> None:
    needs = storage_needs(LLAMA_8B, instance_count=8, dataset_tokens=10**12)
    stored = 3 * checkpoint_bytes(LLAMA_8B) + 2 * LLAMA_8B.parameter_count + 4 * 10**12
    assert needs.capacity_gib == 7200
    assert 4800 < stored / 0.8 / 2**30 <= 7200


@given(
    model=MODELS,
    instances=st.sampled_from([1, 2, 8, 64]),
    dataset=st.sampled_from([0, 10**11, 10**13]),
    interval=st.sampled_from([None, 600.0, 1800.0]),
)
def test_a_checkpoint_never_waits_for_the_one_before_it(
    model: ModelShape, instances: int, dataset: int, interval: float | None
) -> None:
    needs = storage_needs(
        model,
        instance_count=instances,
        dataset_tokens=dataset,
        tokens_per_second=1e4 * instances,
        interval_seconds=interval,
    )
    between = interval or checkpoint_interval_seconds(8 * instances)
    assert needs.checkpoint_write_seconds <= 0.25 * between
    assert needs.checkpoint_write_seconds <= 300
    assert needs.capacity_gib == 1200 or needs.capacity_gib % 2400 == 0
    assert needs.throughput_per_tib in THROUGHPUTS_PER_TIB
    assert needs.throughput_mb_per_second == needs.capacity_gib / 1024 * needs.throughput_per_tib


def test_a_large_checkpoint_asks_for_throughput_and_says_why() -> None:
    large = storage_needs(ModelShape.preset("qwen2.5-32b"), instance_count=8)
    small = storage_needs(LLAMA_8B, instance_count=8)
    assert large.throughput_mb_per_second > small.throughput_mb_per_second
    assert "checkpoints of" in large.why
    assert "MB/s to write or read a checkpoint" in large.why

"""Sizes that FSx for Lustre offers, and the smallest that meets a need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.infrastructure.lustre import (
    EFA_STEP_GIB,
    THROUGHPUT_PER_TIB,
    check_metadata_iops,
    check_size,
    next_size,
    smallest_size,
)


@pytest.mark.parametrize("gib", [1200, 2400, 4800, 7200, 24_000])
def test_offered_sizes_are_taken(gib: int) -> None:
    check_size(gib, 250, efa=False)


@pytest.mark.parametrize(
    ("gib", "next_larger"),
    [(0, 1200), (1, 1200), (1300, 2400), (3600, 4800), (-5, 1200)],
)
def test_fails_between_them_and_names_the_next(gib: int, next_larger: int) -> None:
    with pytest.raises(ValueError, match=f"{gib} is not offered.*next larger is {next_larger}$"):
        check_size(gib, 250, efa=False)


@pytest.mark.parametrize(("per_tib", "floor"), [(125, 38_400), (250, 19_200), (1000, 4_800)])
def test_efa_starts_at_a_high_floor_and_says_so(per_tib: int, floor: int) -> None:
    """awsome-distributed-ai#1124: EFA on FSx forces tens of TiB."""
    check_size(floor, per_tib, efa=True)
    with pytest.raises(ValueError, match=f"EFA at {per_tib}.*next larger is {floor}.*Leave efa"):
        check_size(1200, per_tib, efa=True)


@pytest.mark.parametrize("iops", [0, 1000, 1501, 12_001, 204_000])
def test_fails_for_metadata_speeds_that_are_not_offered(iops: int) -> None:
    with pytest.raises(ValueError, match=r"metadata_iops .* 1500, 3000, 6000 or a multiple"):
        check_metadata_iops(iops)


@pytest.mark.parametrize("iops", [None, 1500, 3000, 6000, 12_000, 24_000, 192_000])
def test_metadata_speeds_on_offer_are_taken(iops: int | None) -> None:
    check_metadata_iops(iops)


def test_a_checkpoint_of_64b_in_three_minutes_needs_4800_gib_at_full_speed() -> None:
    """832 GB in 180 s is 4.6 GB/s; at 1000 MB/s per TiB that is 4.6 TiB."""
    size = smallest_size(capacity_gib=2_000, throughput_mbps=832_000 / 180)
    assert (size.storage_gib, size.throughput_per_tib) == (4800, 1000)


@given(
    gib=st.floats(0, 400_000),
    mbps=st.floats(0, 400_000),
    efa=st.booleans(),
)
def test_the_smallest_size_is_offered_and_meets_both_needs(
    gib: float, mbps: float, efa: bool
) -> None:
    size = smallest_size(capacity_gib=gib, throughput_mbps=mbps, efa=efa)
    check_size(size.storage_gib, size.throughput_per_tib, efa=efa)
    assert size.storage_gib >= gib
    assert size.throughput_mbps >= mbps * (1 - 1e-9)


@given(gib=st.floats(0, 1_000_000), per_tib=st.sampled_from(THROUGHPUT_PER_TIB))
def test_the_next_size_is_less_than_a_step_away(gib: float, per_tib: int) -> None:
    assert 0 <= next_size(gib, per_tib, efa=False) - gib <= 2400
    assert 0 <= next_size(gib, per_tib, efa=True) - gib <= EFA_STEP_GIB[per_tib]

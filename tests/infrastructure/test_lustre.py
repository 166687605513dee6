"""Sizes that FSx for Lustre offers, and the smallest that meets a need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.infrastructure.lustre import (
    EFA_STEP_GIB,
    check_metadata_iops,
    check_size,
    choose_size,
    next_size,
    shortfall,
)
from cdk_blackwell.planning.storage_needs import THROUGHPUTS_PER_TIB, StorageNeeds


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


def need(capacity_gib: int, throughput_per_tib: int) -> StorageNeeds:
    return StorageNeeds(
        capacity_gib=capacity_gib,
        throughput_per_tib=throughput_per_tib,
        checkpoint_write_seconds=100,
        why="three checkpoints",
    )


def test_without_needs_it_is_the_smallest() -> None:
    size = choose_size((), storage_gib=None, throughput_per_tib=None, efa=False)
    assert (size.storage_gib, size.throughput_per_tib) == (1200, 250)


def test_one_jobs_needs_are_met_exactly() -> None:
    size = choose_size([need(4800, 1000)], storage_gib=None, throughput_per_tib=None, efa=False)
    assert (size.storage_gib, size.throughput_per_tib) == (4800, 1000)


def test_jobs_side_by_side_add_up() -> None:
    needs = [need(4800, 1000), need(2400, 250)]
    size = choose_size(needs, storage_gib=None, throughput_per_tib=None, efa=False)
    assert (size.storage_gib, size.throughput_per_tib) == (7200, 1000)
    assert shortfall(size, needs) is None


def test_what_is_given_counts_and_what_it_lacks_is_told() -> None:
    needs = [need(4800, 1000)]
    size = choose_size(needs, storage_gib=2400, throughput_per_tib=250, efa=False)
    assert (size.storage_gib, size.throughput_per_tib) == (2400, 250)
    told = shortfall(size, needs)
    assert told is not None
    assert "2400 GiB and 586 MB/s; planned are 4800 GiB and 4,688 MB/s" in told
    assert "three checkpoints" in told
    assert told.endswith("give it at least storage_gib=4800 and throughput_per_tib=1000")


@given(
    needs=st.lists(
        st.builds(need, st.integers(1, 200_000), st.sampled_from(THROUGHPUTS_PER_TIB)), max_size=4
    ),
    efa=st.booleans(),
)
def test_the_size_chosen_is_offered_and_enough(needs: list[StorageNeeds], efa: bool) -> None:
    size = choose_size(needs, storage_gib=None, throughput_per_tib=None, efa=efa)
    check_size(size.storage_gib, size.throughput_per_tib, efa=efa)
    assert shortfall(size, needs) is None


@given(gib=st.floats(0, 1_000_000), per_tib=st.sampled_from(THROUGHPUTS_PER_TIB))
def test_the_next_size_is_less_than_a_step_away(gib: float, per_tib: int) -> None:
    assert 0 <= next_size(gib, per_tib, efa=False) - gib <= 2400
    assert 0 <= next_size(gib, per_tib, efa=True) - gib <= EFA_STEP_GIB[per_tib]

"""What FSx for Lustre offers and speaks: sizes, speeds, ports, metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdk_blackwell.planning.storage_needs import (
    CAPACITY_STEP_GIB,
    SMALLEST_CAPACITY_GIB,
    THROUGHPUTS_PER_TIB,
    StorageNeeds,
)

GIB_PER_TIB: Final = 1024
LUSTRE_VERSION: Final = "2.15"
DEFAULT_THROUGHPUT_PER_TIB: Final = 250
EFA_STEP_GIB: Final = {125: 38_400, 250: 19_200, 500: 9_600, 1000: 4_800}
"""With EFA, size comes in steps of this, by MB/s per TiB: a file server's own disks."""
METADATA_IOPS: Final = (1500, 3000, 6000, *range(12_000, 192_001, 12_000))
"""Metadata operations per second that can be provisioned on SSD."""
LARGEST_GIB: Final = 1_000 * CAPACITY_STEP_GIB
"""Far above any training job's need; catches slips in the number of zeros."""


_ROUNDING: Final = 1e-9


@dataclass(frozen=True, kw_only=True)
class LustrePorts:
    """One range of TCP ports Lustre speaks on, in both directions."""

    first: int
    last: int
    why: str


LUSTRE_PORTS: Final = (
    LustrePorts(first=988, last=988, why="Lustre network"),
    LustrePorts(first=1018, last=1023, why="Lustre clients"),
)


def check_throughput(throughput_per_tib: int) -> None:
    """Refuse what FSx does not offer."""
    if throughput_per_tib not in THROUGHPUTS_PER_TIB:
        allowed = ", ".join(map(str, THROUGHPUTS_PER_TIB))
        raise ValueError(
            f"throughput_per_tib {throughput_per_tib} is not offered: give one of {allowed}"
        )


def check_size(storage_gib: int, throughput_per_tib: int, *, efa: bool) -> None:
    """Refuse what FSx does not offer; ValueError names the next larger size."""
    check_throughput(throughput_per_tib)
    if isinstance(storage_gib, bool) or not isinstance(storage_gib, int):
        raise ValueError(f"storage_gib {storage_gib!r} is not a whole number of GiB")
    larger = next_size(max(1, storage_gib), throughput_per_tib, efa=efa)
    if storage_gib == larger:
        return
    if storage_gib > LARGEST_GIB:
        raise ValueError(f"storage_gib {storage_gib} is more than the {LARGEST_GIB} taken here")
    if efa:
        step = EFA_STEP_GIB[throughput_per_tib]
        raise ValueError(
            f"storage_gib {storage_gib} is not offered with EFA at {throughput_per_tib} MB/s per "
            f"TiB, which takes multiples of {step}; the next larger is {larger}. Leave efa out, or "
            "raise throughput_per_tib for smaller steps"
        )
    raise ValueError(
        f"storage_gib {storage_gib} is not offered: PERSISTENT_2 SSD takes 1200, 2400 and "
        f"then steps of 2400; the next larger is {larger}"
    )


def check_metadata_iops(iops: int | None) -> None:
    """Refuse what FSx does not offer."""
    if iops is not None and iops not in METADATA_IOPS:
        raise ValueError(
            f"metadata_iops {iops} is not offered: give 1500, 3000, 6000 or a multiple of 12000 up "
            f"to {METADATA_IOPS[-1]}, or leave it out for what comes with the size"
        )


def next_size(gib: float, throughput_per_tib: int, *, efa: bool) -> int:
    """The smallest size offered that holds ``gib``, in GiB."""
    if not efa and gib <= SMALLEST_CAPACITY_GIB:
        return SMALLEST_CAPACITY_GIB
    step = EFA_STEP_GIB[throughput_per_tib] if efa else CAPACITY_STEP_GIB
    return max(1, int(-(-gib // step))) * step


@dataclass(frozen=True, kw_only=True)
class LustreSize:
    """A size that FSx offers."""

    storage_gib: int
    throughput_per_tib: int

    @property
    def throughput_mbps(self) -> float:
        """MB/s of the whole file system."""
        return self.storage_gib / GIB_PER_TIB * self.throughput_per_tib


def choose_size(
    needs: Sequence[StorageNeeds],
    *,
    storage_gib: int | None,
    throughput_per_tib: int | None,
    efa: bool,
) -> LustreSize:
    """What was given, and for what was not, the smallest that meets all needs at once.

    Jobs keep their data side by side and may write at the same time, so both add up. Without needs
    the default is 1200 GiB, or with EFA its smallest step, at 250 MB/s per TiB.
    """
    capacity = float(sum(need.capacity_gib for need in needs))
    speed = sum(need.throughput_mb_per_second for need in needs)

    def holding(per_tib: int) -> LustreSize:
        if storage_gib is not None:
            return LustreSize(storage_gib=storage_gib, throughput_per_tib=per_tib)
        needed = max(capacity, speed / per_tib * GIB_PER_TIB)
        gib = next_size(needed, per_tib, efa=efa)
        return LustreSize(storage_gib=gib, throughput_per_tib=per_tib)

    if throughput_per_tib is None and not needs:
        throughput_per_tib = DEFAULT_THROUGHPUT_PER_TIB
    offered = THROUGHPUTS_PER_TIB if throughput_per_tib is None else (throughput_per_tib,)
    for per_tib in offered:
        check_throughput(per_tib)
    sizes = [holding(per_tib) for per_tib in offered]
    fast_enough = [size for size in sizes if size.throughput_mbps >= speed] or sizes[-1:]
    size = min(fast_enough, key=lambda size: (size.storage_gib, size.throughput_per_tib))
    check_size(size.storage_gib, size.throughput_per_tib, efa=efa)
    return size


def shortfall(size: LustreSize, needs: Sequence[StorageNeeds]) -> str | None:
    """Why ``size`` is less than what is needed; None where it is enough."""
    capacity = sum(need.capacity_gib for need in needs)
    speed = sum(need.throughput_mb_per_second for need in needs)
    if size.storage_gib >= capacity and size.throughput_mbps >= speed * (1 - _ROUNDING):
        return None
    enough = choose_size(needs, storage_gib=None, throughput_per_tib=None, efa=False)
    return (
        f"the file system has {size.storage_gib} GiB and {size.throughput_mbps:,.0f} MB/s; planned "
        f"are {capacity} GiB and {speed:,.0f} MB/s ({'; '.join(need.why for need in needs)}). "
        "Checkpoints will fill it or hold training up: give it at least "
        f"storage_gib={max(size.storage_gib, enough.storage_gib)} and "
        f"throughput_per_tib={enough.throughput_per_tib}"
    )

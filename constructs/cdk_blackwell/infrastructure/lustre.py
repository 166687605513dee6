"""What FSx for Lustre offers and speaks: sizes, speeds, ports, metadata."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

GIB_PER_TIB: Final = 1024
LUSTRE_VERSION: Final = "2.15"
THROUGHPUT_PER_TIB: Final = (125, 250, 500, 1000)
"""MB/s per TiB that PERSISTENT_2 SSD offers."""
SMALLEST_GIB: Final = 1200
STEP_GIB: Final = 2400
"""PERSISTENT_2 SSD: 1200, 2400 and then steps of 2400 GiB."""
EFA_STEP_GIB: Final = {125: 38_400, 250: 19_200, 500: 9_600, 1000: 4_800}
"""With EFA, size comes in steps of this, by MB/s per TiB: a file server's own disks."""
METADATA_IOPS: Final = (1500, 3000, 6000, *range(12_000, 192_001, 12_000))
"""Metadata operations per second that can be provisioned on SSD."""
LARGEST_GIB: Final = 1_000 * STEP_GIB
"""Far above any training job's need; catches slips in the number of zeros."""


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


def check_size(storage_gib: int, throughput_per_tib: int, *, efa: bool) -> None:
    """Refuse what FSx does not offer; ValueError names the next larger size."""
    if throughput_per_tib not in THROUGHPUT_PER_TIB:
        allowed = ", ".join(map(str, THROUGHPUT_PER_TIB))
        raise ValueError(
            f"throughput_per_tib {throughput_per_tib} is not offered: give one of {allowed}"
        )
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
    if not efa and gib <= SMALLEST_GIB:
        return SMALLEST_GIB
    step = EFA_STEP_GIB[throughput_per_tib] if efa else STEP_GIB
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


def smallest_size(*, capacity_gib: float, throughput_mbps: float, efa: bool = False) -> LustreSize:
    """The size with the least GiB, then the least MB/s per TiB, that meets both needs.

    :param capacity_gib: data to hold, GiB.
    :param throughput_mbps: MB/s that reads and checkpoint writes need together.
    """

    def holding(per_tib: int) -> LustreSize:
        needed = max(capacity_gib, throughput_mbps / per_tib * GIB_PER_TIB)
        return LustreSize(
            storage_gib=next_size(needed, per_tib, efa=efa), throughput_per_tib=per_tib
        )

    return min(
        map(holding, THROUGHPUT_PER_TIB), key=lambda s: (s.storage_gib, s.throughput_per_tib)
    )

"""How large and how fast FSx for Lustre must be, so that storage never holds training up."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from cdk_blackwell.planning.cost import checkpoint_bytes
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.intervals import checkpoint_interval_seconds
from cdk_blackwell.planning.model_shape import ModelShape

THROUGHPUTS_PER_TIB: Final = (125, 250, 500, 1000)
"""MB/s per TiB that PERSISTENT_2 SSD offers."""
SMALLEST_CAPACITY_GIB: Final = 1200
CAPACITY_STEP_GIB: Final = 2400
"""1,200, 2,400 and multiples of 2,400 GiB."""
TOKEN_BYTES: Final = 4
"""Token shards hold 32-bit ids at most."""
EXPORT_BYTES: Final = 2
"""Per parameter of the bf16 export."""
FILLED: Final = 0.8
"""Share of the capacity to plan with: full Lustre file systems slow down."""
WRITE_SHARE_OF_INTERVAL: Final = 0.25
"""A checkpoint is written behind training in at most this share of the interval, so that the next
never waits and a failure seldom meets an incomplete one."""
RESTORE_SECONDS: Final = 300.0
"""Target for reading a checkpoint back at a restart: each second is paid for on every GPU."""
READ_AHEAD: Final = 4.0
"""Dataset reads may come in bursts of so many times their average."""
NODE_MB_PER_SECOND: Final = 12_500.0
"""What one node's network interface moves; more per node cannot be used."""


@dataclass(frozen=True, kw_only=True)
class StorageNeeds:
    """What one job needs of a file system; made by ``storage_needs``."""

    capacity_gib: int
    """1,200, 2,400 or a multiple of 2,400."""
    throughput_per_tib: int
    """MB/s per TiB of capacity."""
    checkpoint_write_seconds: float
    """At that throughput, behind training."""
    why: str
    """For people: what takes the space and the speed."""

    @property
    def throughput_mb_per_second(self) -> float:
        """MB/s of the whole file system."""
        return _megabytes_per_second(self.capacity_gib, self.throughput_per_tib)


def storage_needs(
    model: ModelShape,
    *,
    instance_count: int,
    dataset_tokens: int = 0,
    tokens_per_second: float = 0.0,
    kept_checkpoints: int = 2,
    interval_seconds: float | None = None,
) -> StorageNeeds:
    """The smallest capacity, then the smallest throughput, that suffice for one job.

    Sizes and speeds are those of PERSISTENT_2 SSD. That 20 % stay free, a save takes at most a
    quarter of the interval and a restore 5 minutes is this project's choice.

    :param model: its parameters give the size of a checkpoint, 12 bytes each.
    :param instance_count: instances of 8 GPUs, which write together.
    :param dataset_tokens: lying on the file system. Default: the dataset lies elsewhere.
    :param tokens_per_second: over all GPUs, the rate at which the dataset is read. Default: reads
        are not counted.
    :param kept_checkpoints: complete ones; one more is being written. Default: 2.
    :param interval_seconds: between checkpoints. Default: the planned interval.
    """
    gpus = instance_count * P6_B200.gpus
    checkpoint = checkpoint_bytes(model)
    interval = interval_seconds or checkpoint_interval_seconds(gpus)
    stored = (
        (kept_checkpoints + 1) * checkpoint
        + EXPORT_BYTES * model.parameter_count
        + TOKEN_BYTES * dataset_tokens
    )
    capacity = _capacity(stored / FILLED / 2**30)
    limit = min(WRITE_SHARE_OF_INTERVAL * interval, RESTORE_SECONDS)
    writing = min(checkpoint / limit / 1e6, NODE_MB_PER_SECOND * instance_count)
    reading = READ_AHEAD * TOKEN_BYTES * tokens_per_second / 1e6
    needed = writing + reading
    while _megabytes_per_second(capacity, THROUGHPUTS_PER_TIB[-1]) < needed:
        capacity = _capacity(capacity + 1)
    per_tib = next(
        value for value in THROUGHPUTS_PER_TIB if _megabytes_per_second(capacity, value) >= needed
    )
    return StorageNeeds(
        capacity_gib=capacity,
        throughput_per_tib=per_tib,
        checkpoint_write_seconds=checkpoint / 1e6 / _megabytes_per_second(capacity, per_tib),
        why=(
            f"{kept_checkpoints + 1} checkpoints of {checkpoint / 2**30:,.0f} GiB, the export and "
            f"{TOKEN_BYTES * dataset_tokens / 2**30:,.0f} GiB of dataset in {FILLED:.0%} of the "
            f"capacity; {needed:,.0f} MB/s to write or read a checkpoint in {limit:,.0f} s beside "
            f"{reading:,.0f} MB/s of dataset reads"
        ),
    )


def _capacity(gib: float) -> int:
    """The next capacity that exists."""
    if gib <= SMALLEST_CAPACITY_GIB:
        return SMALLEST_CAPACITY_GIB
    return math.ceil(gib / CAPACITY_STEP_GIB) * CAPACITY_STEP_GIB


def _megabytes_per_second(capacity_gib: float, per_tib: float) -> float:
    return capacity_gib / 1024 * per_tib

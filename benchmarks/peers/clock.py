"""How long a step takes, by the clock on the wall and by the CPU."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

STEPS: Final = 8
INTERVAL: Final = 2
"""Steps from one metrics line to the next, and of one measurement; the first are the warm-up."""

Clocks = tuple[float, float]
"""Wall-clock and CPU seconds."""


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Seconds of a step after the warm-up, one of each interval."""

    wall: Sequence[float]
    cpu: Sequence[float]
    """Of all threads of this process; other processes hardly change it."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """Of the wall-clock time in which this trainer stood still, by cause."""

    @property
    def fastest(self) -> float:
        """What the work costs when nothing else runs."""
        return min(self.wall)

    @property
    def median(self) -> float:
        """By the wall clock."""
        return statistics.median(self.wall)


def clocks() -> Clocks:
    """Now."""
    return time.perf_counter(), time.process_time()


def speed(ends: Sequence[Clocks], *, shares: Mapping[str, float] | None = None) -> Speed:
    """From the times at which the warm-up and each interval after it ended."""
    taken = [
        [(after - before) / INTERVAL for before, after in zip(*pair, strict=True)]
        for pair in pairwise(ends)
    ]
    wall, cpu = zip(*taken, strict=True)
    return Speed(wall=wall, cpu=cpu, shares=shares or {})


def ends_of_intervals(ends_of_steps: Sequence[Clocks]) -> Sequence[Clocks]:
    """Of the warm-up, too."""
    return ends_of_steps[INTERVAL - 1 :: INTERVAL]

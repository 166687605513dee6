"""Which rank holds the others up.

Ranks leave a step together, however fast each one is, since collectives wait for the slowest. So
what is compared is work without a collective in it: the same small matrix product on every rank,
which a GPU of lowered clocks does more slowly, and the wait for data. Both are gathered with a
metrics line, not with a step.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from trainer.metrics import Reporter
from trainer.parallel import World

TOLD_ABOVE: Final = 1.15
"""Slowest over median from which an event names the rank: a step is then about as much longer."""
GPU_SIZE: Final = 4096
"""Edge of the square bf16 matrices; about 0.1 ms at 1.4 PFLOP/s, an assumed rate."""
CPU_SIZE: Final = 128
REPETITIONS: Final = 9


@dataclass(frozen=True, kw_only=True)
class Spread:
    """How far ranks lie apart."""

    compute: float
    """Time of the slowest rank's product over the median rank's; 1 when all are alike."""
    slowest: int
    """The rank."""
    data_wait_seconds: float
    """Longest wait for data of any rank."""


def spread(seconds: Sequence[tuple[float, float]]) -> Spread:
    """Of each rank's ``(product, data wait)`` seconds, by rank."""
    products = [product for product, _ in seconds]
    slowest = max(range(len(products)), key=products.__getitem__)
    return Spread(
        compute=products[slowest] / statistics.median(products),
        slowest=slowest,
        data_wait_seconds=max(wait for _, wait in seconds),
    )


class StragglerWatch:
    """One rank's part; all ranks call it together."""

    def __init__(self, world: World, report: Reporter) -> None:
        self._world, self._report = world, report
        size = GPU_SIZE if world.has_gpu else CPU_SIZE
        kind = torch.bfloat16 if world.has_gpu else torch.float32
        self._matrix = torch.full((size, size), 1 / size, dtype=kind, device=world.device)
        self._out = torch.empty_like(self._matrix)
        self._told: int | None = None

    def compare(self, step: int, *, data_wait_seconds: float) -> Spread:
        """Measure, gather and, on GPUs, name a rank that falls behind, once until it changes.

        CPUs are shared with others, so that a single measurement accuses nobody.
        """
        found = spread(self._world.gather((self._product_seconds(), data_wait_seconds)))
        behind = found.slowest if found.compute > TOLD_ABOVE else None
        if self._world.has_gpu and behind is not None and behind != self._told:
            self._report.event("straggler", step=step, rank=behind, ratio=round(found.compute, 3))
        self._told = behind
        return found

    def _product_seconds(self) -> float:
        """Median of several, so that one disturbance does not count."""
        return statistics.median(self._once() for _ in range(REPETITIONS))

    def _once(self) -> float:
        if not self._world.has_gpu:
            started = time.perf_counter()
            torch.mm(self._matrix, self._matrix, out=self._out)
            return time.perf_counter() - started
        make_event: Any = torch.cuda.Event
        begin, end = (make_event(enable_timing=True) for _ in range(2))
        begin.record()
        torch.mm(self._matrix, self._matrix, out=self._out)
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) / 1e3

"""Micro-batches that grow while measured memory allows; the global batch never changes.

Memory peaks are affine in a rank's tokens. So a run begins with a size that is safe, lets memory
settle, reads what the allocator reserved, predicts the next size of ``recipe.batch_growth`` and
takes it if it fits, one size after the other, always between two optimizer steps and on all ranks
alike. Accumulation falls as the size rises.

A size that proves too large is given up: when the allocator had to free its cache and try again,
at once; when a rank ran out of memory, in the next start, which finds the limit that the rank left
beside the checkpoints. Within one start that cannot be mended: the other ranks sit in a collective
that the failed one will never join.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from cdk_blackwell.planning.contracts import NO_SMALLER_BATCH
from cdk_blackwell.planning.hardware import MEMORY_FRACTION, OUTSIDE_TORCH_GIB
from cdk_blackwell.planning.predictions import predict_memory
from cdk_blackwell.planning.run_spec import Layout, RunSpec
from trainer.data import BatchPlan
from trainer.errors import TrainingError
from trainer.metrics import Reporter
from trainer.parallel import World

GIB: Final = 1024**3
SETTLING_STEPS: Final = 3
"""Steps at a size before memory is read: the first makes the optimizer's states, the second is the
first with all of them, one more to be sure."""
LIMIT_FILE: Final = "micro_batch_limit.json"


@dataclass(frozen=True, kw_only=True)
class MemoryReading:
    """What all ranks' allocators say together."""

    reserved_gib: float
    """Largest peak of any rank."""
    budget_gib: float
    """Smallest of any rank."""
    retries: int
    """Most allocations of any rank, since its start, that only went through once the allocator had
    given cached memory back."""


def read_memory(world: World) -> MemoryReading | None:
    """All ranks call it together; None on CPU, which keeps no such account."""
    if not world.has_gpu:
        return None
    total = torch.cuda.get_device_properties(world.device).total_memory / GIB
    reserved, negative_total, retries = world.maximum(
        torch.cuda.max_memory_reserved(world.device) / GIB,
        -total,
        torch.cuda.memory_stats(world.device).get("num_alloc_retries", 0),
    )
    return MemoryReading(
        reserved_gib=reserved,
        # The planner's budget, for the memory that this GPU has.
        budget_gib=MEMORY_FRACTION * -negative_total - OUTSIDE_TORCH_GIB,
        retries=int(retries),
    )


def predict_reserved(
    measured: Mapping[int, float], size: int, planned: Callable[[int], float]
) -> float:
    """Reserved GiB at ``size`` from those measured at smaller sizes.

    The slope is the planner's or that of the two largest sizes measured, whichever is steeper: what
    was reserved for the start, such as loading a checkpoint, can make measurements look too flat.
    """
    *smaller, last = sorted(measured)
    slope = (planned(size) - planned(last)) / (size - last)
    if smaller:
        slope = max(slope, (measured[last] - measured[smaller[-1]]) / (last - smaller[-1]))
    return measured[last] + slope * (size - last)


class BatchGrowth:
    """The size of a run's micro-batches over time; every rank holds one and decides alike."""

    def __init__(
        self,
        spec: RunSpec,
        layout: Layout,
        plan: BatchPlan,
        world: World,
        report: Reporter,
        *,
        folder: Path,
        resumed: int | None = None,
    ) -> None:
        """``plan`` has the first size, ``resumed`` is a checkpoint's, ``folder`` keeps the limit.

        After a resume on another number of ranks, sizes that do not divide a rank's share are left
        out.
        """
        self._spec, self._layout, self._world, self._report = spec, layout, world, report
        self._limit_file = folder / LIMIT_FILE
        share = plan.accumulation * plan.micro_batch_size
        limit = world.from_first(self._read_limit())
        planned = (plan.micro_batch_size, *spec.recipe.batch_growth)
        self._divisors = [size for size in range(1, max(planned) + 1) if share % size == 0]
        growth = [size for size in planned if size in self._divisors]
        allowed = [size for size in growth if limit is None or size <= limit]
        self._sizes = allowed or [max(s for s in self._divisors if limit is None or s <= limit)]
        """Sizes that may still be taken, ascending."""
        self.size = max((s for s in allowed if resumed and s <= resumed), default=self._sizes[0])
        """Sequences per rank and forward pass, now."""
        self._measured: dict[int, float] = {}
        self._steps = 0
        self._retries = 0
        self._settled = read_memory(world) is None
        """Whether nothing can change any more."""
        if self._settled and len(growth) > 1:
            report.event(
                "batch_growth_off",
                micro_batch_size=self.size,
                reason="a CPU keeps no account of reserved memory: the size stays as it is",
            )
        if len(allowed) < len(growth):
            report.event(
                "batch_growth_limited",
                micro_batch_size=self._sizes[-1],
                reason=f"an earlier start ran out of memory above {limit}",
            )

    def after_step(self) -> int | None:
        """All ranks call it between steps; a new size when it changes from here on."""
        if self._settled:
            return None
        self._steps += 1
        if self._steps % SETTLING_STEPS:
            return None
        reading = read_memory(self._world)
        if reading is None:
            return None
        if reading.retries > self._retries:
            return self._shrink(reading)
        if self._measured.get(self.size) is not None:
            return None
        self._measured[self.size] = reading.reserved_gib
        return self._grow(reading)

    def out_of_memory(self, error: RuntimeError) -> TrainingError:
        """Called by a rank that ran out of memory: let the next start stay below this size.

        Returns what this rank fails with.
        """
        said = f"out of memory with {self.size} sequences per rank and forward pass"
        smaller = self._smaller()
        if smaller is None:
            advice = f"{NO_SMALLER_BATCH}; use more GPUs or more activation checkpointing"
            return TrainingError("out_of_memory", f"{said}: {advice} ({error})")
        self._limit_file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._limit_file.with_suffix(f".{self._world.rank}.tmp")
        draft.write_text(json.dumps({"micro_batch_size": smaller}))
        draft.replace(self._limit_file)
        return TrainingError("out_of_memory", f"{said}: the next start uses {smaller} ({error})")

    def _smaller(self) -> int | None:
        """The next size below: one of the run's own, else the largest that divides as well."""
        own = [size for size in self._sizes if size < self.size]
        return max(own or [size for size in self._divisors if size < self.size], default=None)

    def _grow(self, reading: MemoryReading) -> int | None:
        larger = [size for size in self._sizes if size > self.size]
        if not larger:
            return None
        predicted = predict_reserved(self._measured, larger[0], self._planned)
        numbers = {
            "measured_reserved_gib": round(reading.reserved_gib, 2),
            "predicted_reserved_gib": round(predicted, 2),
            "budget_gib": round(reading.budget_gib, 2),
        }
        if predicted > reading.budget_gib:
            self._report.event(
                "batch_growth_ended", micro_batch_size=self.size, refused=larger[0], **numbers
            )
            return None
        self._report.event("batch_grown", was=self.size, micro_batch_size=larger[0], **numbers)
        return self._take(larger[0])

    def _shrink(self, reading: MemoryReading) -> int | None:
        self._retries = reading.retries
        smaller = self._smaller()
        self._sizes = [size for size in self._sizes if size < self.size] or [smaller or self.size]
        self._report.event(
            "batch_shrunk" if smaller else "memory_scarce",
            was=self.size,
            micro_batch_size=smaller or self.size,
            reason=f"the allocator had to free its cache {reading.retries} times to go on",
        )
        if smaller is None:
            return None
        # What is reserved for the larger size serves nothing any more.
        torch.cuda.empty_cache()
        return self._take(smaller)

    def _take(self, size: int) -> int:
        if self._spec.recipe.compile:
            # Compiled blocks are specialised to their shapes; without this they would turn to
            # slower kernels for any shape. A size's first steps compile anew.
            torch.compiler.reset()
        self.size, self._steps = size, 0
        return size

    def _planned(self, size: int) -> float:
        recipe = replace(self._spec.recipe, micro_batch_size=size, batch_growth=())
        return predict_memory(self._spec.model, self._layout, recipe).reserved_gib

    def _read_limit(self) -> int | None:
        """What an earlier start left; a damaged file counts as none, since it only saves time."""
        try:
            value = json.loads(self._limit_file.read_text())["micro_batch_size"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return value if isinstance(value, int) and value > 0 else None

"""What the planner promised against what this run does, said by every run.

The planner predicts for p6-b200. So the ratio of speeds is given on B200 only, and that of memory
on any GPU; on a CPU both numbers are printed side by side with the reason why they are no test of
the prediction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.predictions import Candidate, predict
from cdk_blackwell.planning.run_spec import Layout, RunSpec
from trainer.metrics import Reporter
from trainer.parallel import World

WARM_UP_STEPS: Final = 10
"""Of a start or of a new micro-batch size: compilation, caches and the allocator settle."""
MEMORY_KEYS: Final = ("memory_allocated_gib", "memory_reserved_gib")
SPEED_KEY: Final = "tokens_per_second_per_gpu"


@dataclass(kw_only=True)
class Measured:
    """Sums of metrics lines."""

    tokens: float = 0.0
    seconds: float = 0.0

    def add(self, *, tokens: float, seconds: float) -> None:
        """One more line."""
        self.tokens += tokens
        self.seconds += seconds


class PredictionCheck:
    """Events ``predicted`` and ``predicted_against_measured`` of one start."""

    def __init__(self, spec: RunSpec, layout: Layout, world: World, report: Reporter) -> None:
        self._spec, self._layout, self._report = spec, layout, report
        self._ranks = world.size
        self._device = torch.cuda.get_device_name(world.device) if world.has_gpu else "CPU"
        self._has_gpu = world.has_gpu
        self._predicted: Candidate | None = None
        self._began_at: int | None = None
        self._compared = False
        self._measured, self._last = Measured(), Measured()
        self._memory: dict[str, float] = {}

    def predict(self, micro_batch_size: int) -> None:
        """Say what is expected of a size; what was measured of another one is forgotten."""
        recipe = replace(self._spec.recipe, micro_batch_size=micro_batch_size, batch_growth=())
        self._predicted = predict(self._spec.model, self._layout, recipe)
        self._began_at, self._compared = None, False
        self._measured, self._last, self._memory = Measured(), Measured(), {}
        memory, speed = self._predicted.memory, self._predicted.throughput
        self._report.event(
            "predicted",
            predicted_for=P6_B200.instance_type,
            micro_batch_size=micro_batch_size,
            memory_allocated_gib=round(memory.allocated_gib, 3),
            memory_reserved_gib=round(memory.reserved_gib, 3),
            memory_budget_gib=round(memory.budget_gib, 3),
            tokens_per_second_per_gpu=round(speed.tokens_per_second_per_gpu, 1),
            mfu=round(100 * speed.mfu, 2),
            bound=speed.bound,
            assumptions=list(speed.assumptions),
        )

    def observe(
        self, step: int, *, tokens: float, seconds: float, memory: dict[str, float]
    ) -> None:
        """Take in what a metrics line says of the steps since the one before."""
        self._last = Measured(tokens=tokens, seconds=seconds)
        for key, value in memory.items():
            self._memory[key] = max(value, self._memory.get(key, 0.0))
        if self._began_at is None:
            # The line that holds the first steps is warm-up, however long it is.
            self._began_at = step
            return
        if step - self._began_at < WARM_UP_STEPS:
            return
        self._measured.add(tokens=tokens, seconds=seconds)
        if not self._compared:
            self._compared = True
            self._compare(step, "after_warm_up", self._measured)

    def conclude(self, step: int) -> None:
        """At the end of the steps: all that came after the warm-up, else the last line."""
        whole = self._measured if self._measured.seconds else self._last
        if whole.seconds:
            when = "end" if self._measured.seconds else "end_within_warm_up"
            self._compare(step, when, whole)

    def _compare(self, step: int, when: str, measured: Measured) -> None:
        assert self._predicted is not None
        speed = measured.tokens / measured.seconds / self._ranks
        expected = {
            "memory_allocated_gib": self._predicted.memory.allocated_gib,
            "memory_reserved_gib": self._predicted.memory.reserved_gib,
            SPEED_KEY: self._predicted.tokens_per_second_per_gpu,
        }
        found = {**{key: self._memory.get(key) for key in MEMORY_KEYS}, SPEED_KEY: speed}
        comparable = {
            **dict.fromkeys(MEMORY_KEYS, self._has_gpu),
            SPEED_KEY: P6_B200.accelerator in self._device,
        }
        numbers: dict[str, Any] = {}
        for key, value in found.items():
            ratio = value / expected[key] if value is not None and comparable[key] else None
            numbers[key] = {
                "predicted": round(expected[key], 4),
                "measured": None if value is None else round(value, 4),
                "measured_over_predicted": None if ratio is None else round(ratio, 4),
            }
        self._report.event(
            "predicted_against_measured",
            step=step,
            when=when,
            device=self._device,
            **numbers,
            **({"not_comparable": reason} if (reason := self._reason()) else {}),
        )

    def _reason(self) -> str | None:
        if not self._has_gpu:
            return (
                f"predicted for {P6_B200.accelerator}, measured on a CPU: a CPU keeps no account "
                "of memory, and its speed says nothing about a GPU's"
            )
        if P6_B200.accelerator not in self._device:
            return f"speed is predicted for {P6_B200.accelerator}, measured on {self._device}"
        return None

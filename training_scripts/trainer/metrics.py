"""One JSON object a line on standard output, from rank 0."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from cdk_blackwell.planning.hardware import peak_flops
from cdk_blackwell.planning.metrics import LINE_EVENT, LINE_KEY, LINE_METRICS, METRICS
from cdk_blackwell.planning.run_spec import RunSpec
from cdk_blackwell.planning.throughput import flops_per_token
from trainer.parallel import World

FLOPS_CONVENTION: Final = "causal"
_KEYS = {metric.key for metric in METRICS}


class Reporter:
    """Prints metric and event lines."""

    def __init__(self, world: World) -> None:
        self._speaks = world.is_first
        self._rank = world.rank
        self._sink: Callable[[Mapping[str, float]], None] | None = None
        self.latest: dict[str, float] = {}
        """Newest value of every metric so far, by key; ``progress.json`` carries them."""

    def also_to(self, sink: Callable[[Mapping[str, float]], None]) -> None:
        """Give the numbers of every metrics line to ``sink`` too."""
        self._sink = sink

    def event(self, event: str, **details: Any) -> None:
        """Something happened."""
        self._print({LINE_KEY: LINE_EVENT, "event": event, **details})

    def event_of_rank(self, event: str, **details: Any) -> None:
        """Something happened to this rank alone; printed by any rank, with its number."""
        _print_line({LINE_KEY: LINE_EVENT, "event": event, "rank": self._rank, **details})

    def metrics(self, **values: float | None) -> None:
        """Numbers of the metrics table; None is left out."""
        unknown = set(values) - _KEYS
        if unknown:
            raise KeyError(f"not in the metrics table: {sorted(unknown)}")
        known = {key: value for key, value in values.items() if value is not None}
        self.latest |= known
        convention = {"flops_convention": FLOPS_CONVENTION} if "mfu" in known else {}
        self._print({LINE_KEY: LINE_METRICS, **known, **convention})
        if self._sink:
            self._sink(known)

    def _print(self, record: dict[str, Any]) -> None:
        if self._speaks:
            _print_line(record)


def _print_line(record: dict[str, Any]) -> None:
    # The default separators are part of the contract: metric patterns rely on them.
    # One write a line, since the timer of progress.json may speak at the same time.
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


def model_flops_utilization(
    spec: RunSpec, *, tokens_per_second: float, ranks: int, peak: float | None
) -> float | None:
    """Model FLOPs over dense peak in percent; None where the device's peak is not known."""
    if peak is None:
        return None
    work = flops_per_token(spec.model, spec.recipe.sequence_length, convention=FLOPS_CONVENTION)
    return 100 * tokens_per_second * work / (ranks * peak)


def device_peak_flops(spec: RunSpec, world: World) -> float | None:
    """Dense FLOP/s of this rank's GPU; None on CPU and on unknown GPUs."""
    if not world.has_gpu:
        return None
    return peak_flops(torch.cuda.get_device_name(world.device), spec.recipe.precision)


def gpu_memory(world: World) -> dict[str, float]:
    """Peaks since the last call and the allocator's troubles since the start, maximum over ranks;
    nothing on CPU."""
    if not world.has_gpu:
        return {}
    statistics = torch.cuda.memory_stats(world.device)
    names = ("memory_allocated_gib", "memory_reserved_gib", "allocator_retries", "allocator_ooms")
    values = world.maximum(
        torch.cuda.max_memory_allocated(world.device) / 1024**3,
        torch.cuda.max_memory_reserved(world.device) / 1024**3,
        statistics.get("num_alloc_retries", 0),
        statistics.get("num_ooms", 0),
    )
    torch.cuda.reset_peak_memory_stats(world.device)
    return dict(zip(names, values, strict=True))

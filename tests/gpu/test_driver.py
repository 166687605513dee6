"""NVML's numbers are those of the very GPU that torch computes on."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch

from trainer.gpu_stats import watch_gpu
from trainer.metrics import Reporter
from trainer.parallel import World

pytestmark = pytest.mark.gpu

SIZE_GIB = 2


def sample(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The first line of numbers of a watch."""
    pytest.importorskip("pynvml", reason="NVML's bindings (nvidia-ml-py) are not installed")
    told: dict[str, Any] = {}
    done = threading.Event()

    def tell(_: Reporter, event: str, **details: Any) -> None:
        told.setdefault(event, details)
        if event in ("gpu", "gpu_watch_off"):
            done.set()

    monkeypatch.setattr(Reporter, "event_of_rank", tell)
    watch = watch_gpu(world, Reporter(world), interval_seconds=0.05)
    assert watch is not None
    assert done.wait(20)
    watch.close()
    assert "gpu_watch_off" not in told, told
    numbers: dict[str, Any] = told["gpu"]
    return numbers


def test_memory_that_torch_takes_shows_in_the_drivers_numbers(
    world: World, monkeypatch: pytest.MonkeyPatch, figures: dict[str, Any]
) -> None:
    before = sample(world, monkeypatch)
    taken = torch.ones(SIZE_GIB * 1024**3 // 4, device=world.device)
    after = sample(world, monkeypatch)
    figures["nvml"] = {"before": before, "after": after}
    assert after["memory_used_gib"] - before["memory_used_gib"] == pytest.approx(SIZE_GIB, abs=0.1)
    free, total = torch.cuda.mem_get_info(world.device)
    # What the driver keeps for itself counts in one of them.
    assert after["memory_used_gib"] == pytest.approx((total - free) / 1024**3, abs=2.0)
    assert taken.sum() == taken.numel()
    assert after["power_watts"] > 0
    assert 0 <= after["utilization_percent"] <= 100
    assert after["sm_clock_mhz"] > 0

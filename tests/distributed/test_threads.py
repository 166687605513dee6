"""Threads that may speak to CUDA take their rank's GPU first: a new thread has the host's first."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
import torch

from cdk_blackwell.planning.records import CompleteMarker
from tests.distributed.forked import fork_ranks
from trainer.parallel import World
from trainer.saving import Writer


class NotingWorld(World):
    """Notes which threads asked for the rank's device, and when."""

    def use_device(self) -> None:
        noted.append(threading.current_thread().name)
        super().use_device()


noted: list[str] = []


def test_the_thread_that_writes_checkpoints_takes_its_ranks_gpu(tmp_path: Path) -> None:
    def save(world: World) -> list[str]:
        writer = Writer(NotingWorld(rank=world.rank, size=world.size, device=world.device))
        marker = CompleteMarker(
            run_id="tiny", step=1, tokens=1, ranks=1, recipe_sha256="0" * 64, files={}
        )
        writer.begin(
            {"model": torch.ones(3)}, tmp_path / "step", lambda _: marker, finish=lambda: None
        )
        assert writer.wait(30)
        writer.collect()
        return noted

    assert fork_ranks(1, save) == [["checkpoint"]]


def test_a_ranks_gpu_is_the_threads_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[torch.device] = []
    monkeypatch.setattr(torch.cuda, "set_device", taken.append)
    World(rank=0, size=8, device=torch.device("cpu")).use_device()
    assert not taken, "a CPU rank never wakes CUDA"
    World(rank=3, size=8, device=torch.device("cuda", 3)).use_device()
    assert taken == [torch.device("cuda", 3)]

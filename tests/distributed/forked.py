"""Ranks without torchrun: import once, fork, meet over a file.

Every torch computation happens in a forked child, so the parent never starts the threads that a
fork would lose. Children return plain values.
"""

from __future__ import annotations

import contextlib
import io
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

# Imported here so that no rank imports them anew after its fork: Dynamo alone takes 3 seconds.
from torch import _dynamo  # noqa: F401
from torch.distributed import fsdp as _fsdp  # noqa: F401

from cdk_blackwell.planning.run_spec import RunSpec
from tests.training_scripts.tiny import tiny_spec
from trainer.container import Container
from trainer.layout import Meshes, layout_in_use, make_meshes
from trainer.parallel import World
from trainer.rank_state import RankReporter
from trainer.run import train
from trainer.signals import StopFlag

with contextlib.suppress(ImportError):
    # Optional, and it takes seconds: likewise before the fork.
    from torch.utils import tensorboard as _tensorboard  # noqa: F401

T = TypeVar("T")

TIMEOUT_SECONDS = 90

torch.set_num_threads(1)


def fork_ranks(
    count: int, function: Callable[[World], T], *, timeout_seconds: float = TIMEOUT_SECONDS
) -> list[T]:
    """Run ``function`` on ``count`` ranks; their results by rank."""
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "store")
        pairs = [context.Pipe(duplex=False) for _ in range(count)]
        ranks = [
            context.Process(target=_rank, args=(rank, count, store, function, pairs[rank][1]))
            for rank in range(count)
        ]
        for process in ranks:
            process.start()
        try:
            return [_receive(rank, pair[0], timeout_seconds) for rank, pair in enumerate(pairs)]
        finally:
            for process in ranks:
                process.join(5)
                if process.is_alive():
                    process.kill()
                    process.join()


def _receive(rank: int, end: Connection, timeout_seconds: float) -> Any:
    if not end.poll(timeout_seconds):
        raise TimeoutError(f"rank {rank} gave no answer within {timeout_seconds} s")
    good, value = end.recv()
    if not good:
        raise AssertionError(f"rank {rank} failed:\n{value}")
    return value


def _rank(
    rank: int, count: int, store: str, function: Callable[[World], Any], end: Connection
) -> None:
    status = 1
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{store}",
            rank=rank,
            world_size=count,
            timeout=timedelta(seconds=60),
        )
        end.send((True, function(World(rank=rank, size=count, device=torch.device("cpu")))))
        status = 0
    except BaseException:
        end.send((False, traceback.format_exc()))
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def cpu_meshes(world: World, **layout: Any) -> Meshes:
    """Meshes of a layout; without any, all ranks share the parameters."""
    planned = tiny_spec(layout=layout).layout if layout else tiny_spec().layout
    used, _ = layout_in_use(planned, world)
    return make_meshes(used, kind="cpu", rank=world.rank)


class SignalAt(RankReporter):
    """A rank that gets SIGTERM when it reaches a step; half steps lie between micro-batches."""

    def __init__(self, *, rank: int, step: float | None) -> None:
        super().__init__(rank=rank, folder=None)
        self._signal_step = step

    def advance(self, step: int) -> None:
        super().advance(step)
        self._signal(step)

    def beat(self) -> None:
        super().beat()
        self._signal(self.step + 0.5)

    def _signal(self, reached: float) -> None:
        if reached == self._signal_step:
            os.kill(os.getpid(), signal.SIGTERM)


@dataclass(kw_only=True)
class Told:
    """What one rank printed and how its training ended."""

    step: int
    stopped: bool
    records: list[dict[str, Any]] = field(default_factory=list)

    def series(self, key: str) -> dict[int, float]:
        """Step -> value of a metric."""
        return {r["step"]: r[key] for r in self.records if key in r and "event" not in r}

    def events(self, name: str) -> list[dict[str, Any]]:
        """All events of a name."""
        return [r for r in self.records if r.get("event") == name]


def train_ranks(
    count: int, spec: RunSpec, root: Path, *, sigterm_at: dict[int, float] | None = None
) -> list[Told]:
    """Train a whole run, or until a rank in ``sigterm_at`` reaches its step."""
    told: list[Told] = fork_ranks(
        count, lambda world: train_rank(world, spec, root, (sigterm_at or {}).get(world.rank))
    )
    return told


def train_rank(world: World, spec: RunSpec, root: Path, sigterm_at: float | None = None) -> Told:
    """One rank's part of a run."""
    ranks = SignalAt(rank=world.rank, step=sigterm_at)
    stop = StopFlag(ranks)
    stop.install()
    container = Container(root=root, checkpoints=root / "checkpoints", run_uri=None, attempt=1)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        outcome = train(spec, container, world, stop=stop, ranks=ranks)
    records = [json.loads(line) for line in printed.getvalue().splitlines()]
    return Told(step=outcome.step, stopped=outcome.stopped, records=records)

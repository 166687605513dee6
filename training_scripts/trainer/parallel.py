"""Processes and devices: this rank's place among all, and small messages between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist

CPU = torch.device("cpu")
Value = TypeVar("Value")
COLLECTIVE_TIMEOUT = timedelta(minutes=20)
_GROUPS: dict[str, dist.ProcessGroup] = {}


@dataclass(frozen=True, kw_only=True)
class World:
    """This rank's place among all ranks."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        """Whether this rank writes what is written once."""
        return self.rank == 0

    @property
    def has_gpu(self) -> bool:
        """Whether ranks compute on NVIDIA GPUs."""
        return self.device.type == "cuda"

    def use_device(self) -> None:
        """Make this rank's GPU the calling thread's own; nothing on CPU.

        A new thread begins with the first GPU of the host, and a library that asks CUDA for a
        stream there takes hundreds of MiB of it, for every rank that does so.
        """
        if self.has_gpu:
            torch.cuda.set_device(self.device)

    def maximum(self, *values: float) -> list[float]:
        """Element-wise maximum over ranks, by CPU messages: no GPU has to be waited for."""
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        return [float(value) for value in tensor]

    def total(self, value: torch.Tensor) -> torch.Tensor:
        """Sum over ranks of a tensor on the device."""
        dist.all_reduce(value, op=dist.ReduceOp.SUM)
        return value

    def from_first(self, value: Value) -> Value:
        """Rank 0's value, on every rank."""
        box = [value]
        dist.broadcast_object_list(box, src=0, device=CPU)
        return box[0]

    def first_problem(self, problem: str | None) -> str | None:
        """The problem of the lowest rank that has one, known to every rank."""
        return next((text for text in self.gather(problem) if text), None)

    def gather(self, value: Value) -> list[Value]:
        """Every rank's value, on every rank, by rank."""
        values: list[Value] = [value] * self.size
        dist.all_gather_object(values, value)
        return values

    def barrier(self) -> None:
        """Wait for all ranks."""
        self.maximum(0.0)


@contextmanager
def process_group(environment: Mapping[str, str]) -> Iterator[World]:
    """Join the group that torchrun describes in the environment; leave it after success only.

    After an error other ranks may still wait in a collective, and NCCL's leaving waits for them.
    """
    gpu = torch.cuda.is_available()
    if gpu:
        device = torch.device("cuda", int(environment["LOCAL_RANK"]))
        # Before the group is joined: NCCL takes the thread's GPU for this rank's.
        torch.cuda.set_device(device)
    else:
        device = CPU
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=COLLECTIVE_TIMEOUT)
    yield World(rank=dist.get_rank(), size=dist.get_world_size(), device=device)
    dist.destroy_process_group()


def remember_group(group: dist.ProcessGroup) -> None:
    """Make a group known by its name to operators, which take numbers, texts and tensors only."""
    _GROUPS[group.group_name] = group


def group_named(name: str) -> dist.ProcessGroup:
    """The group that was remembered last under its ``group_name``."""
    return _GROUPS[name]

"""Processes, devices and FSDP2: who holds which part of the model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard

from cdk_blackwell.planning.run_spec import Layout, Precision
from trainer.errors import user_error
from trainer.model import Decoder

CPU = torch.device("cpu")
Value = TypeVar("Value")
COMPUTE_DTYPES: Mapping[Precision, torch.dtype | None] = {"bf16": torch.bfloat16, "fp32": None}
COLLECTIVE_TIMEOUT = timedelta(minutes=20)


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
        torch.cuda.set_device(device)
    else:
        device = CPU
    dist.init_process_group("cpu:gloo,cuda:nccl" if gpu else "gloo", timeout=COLLECTIVE_TIMEOUT)
    yield World(rank=dist.get_rank(), size=dist.get_world_size(), device=device)
    dist.destroy_process_group()


def check_layout(layout: Layout, world: World) -> str | None:
    """Refuse a layout this trainer cannot do, or that the GPUs at hand do not match.

    On CPU, where no layout was planned for, all ranks share the parameters; returns a warning.
    """
    for name in ("context_parallel", "tensor_parallel"):
        degree = getattr(layout, name)
        if degree != 1:
            raise user_error(f"layout {name} is {degree}; this entrypoint allows only 1")
    planned = layout.shard_gpus * layout.replicas
    if planned == world.size:
        return None
    if world.has_gpu:
        raise user_error(
            f"run.json plans shard_gpus {layout.shard_gpus} x replicas {layout.replicas} = "
            f"{planned} GPUs, but {world.size} ranks were started; start the run on the planned "
            "number of instances, or plan again"
        )
    return f"planned for {planned} GPUs; {world.size} CPU ranks share the parameters instead"


def make_mesh(layout: Layout, world: World) -> DeviceMesh:
    """One dimension (FSDP), or two when copies are replicated (HSDP)."""
    kind = world.device.type
    planned = layout.shard_gpus * layout.replicas
    if layout.replicas > 1 and planned == world.size:
        shape = (layout.replicas, layout.shard_gpus)
        return init_device_mesh(kind, shape, mesh_dim_names=("replicate", "shard"))
    return init_device_mesh(kind, (world.size,), mesh_dim_names=("shard",))


def shard(model: Decoder, mesh: DeviceMesh, precision: Precision) -> None:
    """FSDP2 with fp32 master weights and gradients reduced in fp32.

    Every block, the embedding and the head are groups of their own, gathered for their own forward
    and backward pass; tied, embedding and head are one matrix and belong to the root, as the final
    norm always does.
    """
    if precision not in COMPUTE_DTYPES:
        raise user_error(
            f"precision is {precision!r}; this bundle trains in {', '.join(COMPUTE_DTYPES)}"
        )
    policy = MixedPrecisionPolicy(param_dtype=COMPUTE_DTYPES[precision], reduce_dtype=torch.float32)
    for block in model.layers:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    if model.lm_head is not None:
        fully_shard(model.embed_tokens, mesh=mesh, mp_policy=policy)
        # Backward begins with the head: to free it after forward would gather it twice in a row.
        fully_shard(model.lm_head, mesh=mesh, mp_policy=policy, reshard_after_forward=False)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def set_last_micro_batch(model: torch.nn.Module, last: bool) -> None:
    """Replicas exchange gradients only after the last micro-batch of a step."""
    if isinstance(model, FSDPModule):
        model.set_requires_all_reduce(last)
        model.set_is_last_backward(last)

"""What needs a GPU skips without one and says why; what is measured is left as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.gpu.one_gpu import FIGURES, missing_gpu
from trainer.parallel import World

# cuBLAS reads it with its first product; deterministic algorithms ask for it.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The first GPU, as the only rank of a group like that of torchrun's ranks."""
    reason = missing_gpu()
    if reason:
        pytest.skip(reason)
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    store = str(tmp_path_factory.mktemp("group") / "store")
    dist.init_process_group(
        "cpu:gloo,cuda:nccl", init_method=f"file://{store}", rank=0, world_size=1
    )
    yield World(rank=0, size=1, device=device)
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def cpu_world(world: World) -> World:
    """The same rank without its GPU, for what the GPU is compared with."""
    # One thread is what forked ranks have; here nothing else computes meanwhile.
    torch.set_num_threads(min(16, os.cpu_count() or 1))
    return World(rank=world.rank, size=world.size, device=torch.device("cpu"))


@pytest.fixture(autouse=True)
def clean_memory(world: World) -> Iterator[None]:
    """Each test begins with an empty allocator and its peaks at nothing; skips without a GPU."""
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(world.device)
    yield
    torch.compiler.reset()


@pytest.fixture(scope="session")
def figures(world: World) -> Iterator[dict[str, Any]]:
    """By subject; written when the session ends, with the machine."""
    found: dict[str, Any] = {}
    yield found
    major, minor = torch.cuda.get_device_capability(world.device)
    machine = {
        "gpu": torch.cuda.get_device_name(world.device),
        "capability": f"SM{major}{minor}",
        "memory_gib": torch.cuda.get_device_properties(world.device).total_memory / 1024**3,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
    }
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps({"machine": machine, "figures": found}, indent=2) + "\n")

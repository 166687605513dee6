"""Compiled blocks are compiled whole, once for all that are alike, in every mode.

``aot_eager`` traces and differentiates as the real backend does and runs plain operations, so what
Dynamo cannot trace shows on CPU. What inductor makes of it is tested on a GPU.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
import torch

from tests.distributed.forked import cpu_meshes, fork_ranks
from tests.training_scripts.tiny import SEQUENCE_LENGTH, VOCABULARY, tiny_shape, tiny_spec
from trainer.activation_checkpointing import apply_activation_checkpointing
from trainer.compilation import compile_blocks
from trainer.model import Decoder, initialise
from trainer.parallel import World
from trainer.sharding import set_micro_batch, shard, share_sequences
from trainer.tensor_parallel import split_tensors

LAYERS: Final = 10
"""More than the eight versions after which Dynamo gives a function up."""
GRAPHS: Final = {"none": 1, "selective": 1, "every:2": 2}
"""Kinds of blocks of each mode; every second one is in full."""


Told = list[tuple[list[float], int, int]]
"""Losses and gradients of each step, with the graphs and breaks so far."""


def steps(world: World, mode: str, *, compiled: bool, **layout: Any) -> Told:
    """Two steps of two micro-batches."""
    from torch._dynamo.utils import counters

    torch.compiler.reset()
    counters.clear()
    spec = tiny_spec(shape=tiny_shape(num_hidden_layers=LAYERS))
    meshes = cpu_meshes(world, **layout)
    with torch.device("meta"):
        model = Decoder(spec.model)
    split_tensors(model, meshes.tensor)
    share_sequences(model, meshes.context)
    apply_activation_checkpointing(model, mode)
    if compiled:
        compile_blocks(model, backend="aot_eager")
    shard(model, meshes, "fp32")
    model.to_empty(device="cpu")
    initialise(model, seed=1)
    tokens = torch.arange(2 * SEQUENCE_LENGTH).view(2, -1) % VOCABULARY
    told = []
    for _ in range(2):
        numbers: list[float] = []
        for last in (False, True):
            set_micro_batch(model, meshes.layout, last=last)
            loss = model(tokens, tokens)
            loss.backward()
            numbers.append(loss.item())
        for parameter in model.parameters():
            gradient: Any = parameter.grad
            numbers.append(gradient.full_tensor().norm().item())
            parameter.data.sub_(gradient, alpha=1e-4)
            parameter.grad = None
        breaks = sum(counters["graph_break"].values())
        told.append((numbers, counters["stats"]["unique_graphs"], breaks))
    return told


LAYOUTS: Final[dict[str, dict[str, int]]] = {
    "alone": {"shard_gpus": 1},
    "exchanging heads": {"shard_gpus": 2, "context_parallel": 2, "ulysses": 2},
    "gathering keys": {"shard_gpus": 2, "context_parallel": 2},
    "splitting matrices": {"shard_gpus": 1, "tensor_parallel": 2},
    "gathering and splitting": {"shard_gpus": 2, "context_parallel": 2, "tensor_parallel": 2},
}
SLOW: Final = tuple(LAYOUTS)[3:]


@pytest.mark.parametrize(
    "layout",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in LAYOUTS],
)
def test_blocks_compile_whole_and_once(layout: str) -> None:
    """In every mode and layout, as planning takes for granted; with the numbers of plain blocks."""
    chosen = LAYOUTS[layout]
    every = GRAPHS if layout == "alone" else {mode: GRAPHS[mode] for mode in ("none", "selective")}

    def both(world: World) -> list[list[Told]]:
        return [
            [steps(world, mode, compiled=compiled, **chosen) for compiled in (False, True)]
            for mode in every
        ]

    ranks = chosen["shard_gpus"] * chosen.get("tensor_parallel", 1)
    for mode, (plain, compiled) in zip(every, fork_ranks(ranks, both)[0], strict=True):
        assert [graphs for _, graphs, _ in plain] == [0, 0]
        assert [(graphs, breaks) for _, graphs, breaks in compiled] == [(GRAPHS[mode], 0)] * 2
        for (expected, *_), (found, *_) in zip(plain, compiled, strict=True):
            assert found == pytest.approx(expected, rel=1e-6), mode

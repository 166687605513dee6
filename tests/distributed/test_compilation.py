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


@pytest.mark.parametrize("mode", GRAPHS)
def test_blocks_compile_whole_and_once(mode: str) -> None:
    def both(world: World) -> list[Told]:
        return [steps(world, mode, compiled=compiled) for compiled in (False, True)]

    (plain, compiled) = fork_ranks(1, both)[0]
    assert [graphs for _, graphs, _ in plain] == [0, 0]
    assert [(graphs, breaks) for _, graphs, breaks in compiled] == [(GRAPHS[mode], 0)] * 2
    for (expected, *_), (found, *_) in zip(plain, compiled, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)


def test_blocks_that_share_sequences_compile_around_their_attention() -> None:
    """Also inside a checkpoint, where Dynamo would give the block up; then no more per step."""
    layout = {"shard_gpus": 2, "context_parallel": 2, "ulysses": 2}

    def both(world: World) -> list[Told]:
        return [steps(world, "full", compiled=compiled, **layout) for compiled in (False, True)]

    (plain, compiled) = fork_ranks(2, both)[0]
    first, second = (graphs for _, graphs, _ in compiled)
    assert 2 <= first == second < LAYERS, "the same pieces serve all blocks"
    for (expected, *_), (found, *_) in zip(plain, compiled, strict=True):
        assert found == pytest.approx(expected, rel=1e-4)

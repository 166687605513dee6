"""Compiled blocks by inductor: the losses of plain operations, and no compilation once warm."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from torch._dynamo.utils import counters

from tests.gpu.one_gpu import Steps, run
from tests.training_scripts.tiny import tiny_shape, tiny_spec
from trainer.parallel import World

pytestmark = pytest.mark.gpu

SHAPE = tiny_shape(
    hidden_size=256,
    intermediate_size=512,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=64,
    num_hidden_layers=10,
    max_position_embeddings=128,
)


def frames() -> int:
    """Frames that Dynamo has compiled since the process began."""
    return int(counters["frames"]["total"])


@pytest.mark.parametrize("mode", ["none", "selective"])
def test_compiled_blocks_train_alike_and_compile_again_only_for_a_larger_batch(
    mode: str, world: World, tmp_path: Path
) -> None:
    recipe = {
        "precision": "bf16",
        "sequence_length": 128,
        "global_batch_tokens": 1024,
        "micro_batch_size": 2,
        "batch_growth": (4,),
        "activation_checkpointing": mode,
    }
    spec = tiny_spec(shape=SHAPE, recipe=recipe, layout={"shard_gpus": 1})
    # Held-out batches compile a version without gradients: before the first step, then never.
    limits = replace(spec.limits, validation_interval_steps=1000)
    spec = replace(spec, train_tokens=9 * 1024, limits=limits)
    plain = run(spec, tmp_path / "plain", world)
    steps = Steps(look=frames)
    fast = replace(spec, recipe=replace(spec.recipe, compile=True))
    compiled = run(fast, tmp_path / "compiled", world, steps=steps)

    assert compiled.series("loss") == pytest.approx(plain.series("loss"), rel=0.01)
    (grown,) = compiled.events("batch_grown")
    assert (grown["was"], grown["micro_batch_size"]) == (2, 4)
    counts = sorted(steps.seen.items())
    changed = [step for (_, before), (step, after) in pairwise(counts) if after != before]
    assert changed == [1, 4], f"frames compiled by step: {counts}"

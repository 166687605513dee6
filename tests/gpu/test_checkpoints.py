"""Checkpoints of a GPU's tensors: through pinned memory, behind the training, bit-identical."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from cdk_blackwell.planning.records import CompleteMarker
from tests.gpu.one_gpu import Steps, run
from tests.training_scripts.tiny import tiny_shape, tiny_spec
from trainer.parallel import World
from trainer.saving import Writer

pytestmark = pytest.mark.gpu

SHAPE = tiny_shape(head_dim=64, hidden_size=256, intermediate_size=512)


@pytest.fixture
def deterministic() -> Iterator[None]:
    """Attention's backward pass and others sum in a fixed order."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("deterministic")
def test_a_resumed_run_is_bit_identical(world: World, tmp_path: Path) -> None:
    spec = tiny_spec(shape=SHAPE, recipe={"precision": "bf16"}, layout={"shard_gpus": 1})
    through = run(spec, tmp_path / "through", world)
    root = tmp_path / "stopped"
    first = run(spec, root, world, steps=Steps(stop_at=3))
    second = run(spec, root, world)
    assert (first.step, first.stopped) == (3, True)
    assert second.events("resumed")[0]["step"] == 3
    for key in ("loss", "gradient_norm"):
        assert first.series(key) | second.series(key) == through.series(key), key


def test_what_is_saved_goes_through_pinned_memory_once(
    world: World, tmp_path: Path, figures: dict[str, Any]
) -> None:
    """The second save finds the first one's buffers: pinning is slow."""
    writer = Writer(world)
    state = {"model": {"weight": torch.randn(512 * 1024**2 // 4, device=world.device)}}

    def marker(files: Any) -> CompleteMarker:
        return CompleteMarker(
            run_id="gpu", step=1, tokens=1, ranks=1, recipe_sha256="0" * 64, files=files
        )

    blocked, whole, places = [], [], []
    for number in range(2):
        writer.begin(state, tmp_path / f"save-{number}", marker, finish=lambda: None)
        # Training goes on and changes what was copied.
        state["model"]["weight"].add_(1)
        assert writer.wait(60)
        saved = writer.collect()
        blocked.append(saved.blocked_seconds)
        whole.append(saved.seconds)
        (buffer,) = writer._stager._state_dict_stager._cached_storage_mapping.values()
        assert buffer.is_pinned()
        places.append(buffer.data_ptr())
    assert places[0] == places[1]
    figures["checkpoint of 512 MiB"] = {
        "blocked_seconds": blocked,
        "whole_seconds": whole,
        "blocked_over_whole": [a / b for a, b in zip(blocked, whole, strict=True)],
    }


def test_saves_behind_the_training_change_nothing(
    world: World, deterministic: None, tmp_path: Path, figures: dict[str, Any]
) -> None:
    spec = tiny_spec(shape=SHAPE, recipe={"precision": "bf16"}, layout={"shard_gpus": 1})
    often = replace(spec, checkpoint=replace(spec.checkpoint, interval_seconds=1e-6))
    seldom, told = run(spec, tmp_path / "seldom", world), run(often, tmp_path / "often", world)
    assert told.series("loss") == seldom.series("loss")
    assert len(told.events("checkpoint")) > 1
    figures["saves of a run"] = {
        key: told.series(key) for key in ("checkpoint_blocked_seconds", "checkpoint_seconds")
    }

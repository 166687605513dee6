"""Another micro-batch changes memory and nothing else: the same data, the same losses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distributed.forked import Told, fork_ranks, train_rank, train_ranks
from tests.training_scripts.tiny import tiny_spec, write_container
from trainer import batch_growth
from trainer.batch_growth import LIMIT_FILE, MemoryReading
from trainer.errors import TrainingError
from trainer.loop import TrainingLoop
from trainer.parallel import World

GROWING = tiny_spec(steps=8, recipe={"micro_batch_size": 1, "batch_growth": (2, 4)})
PLENTY = MemoryReading(reserved_gib=1.0, budget_gib=100.0, retries=0)


def test_growing_changes_neither_data_nor_losses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixed = train_ranks(2, GROWING, write_container(tmp_path / "fixed", GROWING))[0]
    monkeypatch.setattr(batch_growth, "read_memory", lambda _: PLENTY)
    root = write_container(tmp_path / "grown", GROWING)
    grown = train_ranks(2, GROWING, root)[0]

    assert [event["reason"][:5] for event in fixed.events("batch_growth_off")] == ["a CPU"]
    assert [event["micro_batch_size"] for event in grown.events("batch_grown")] == [2, 4]
    assert [event["micro_batch_size"] for event in grown.events("predicted")] == [1, 2, 4]
    assert grown.events("predicted_against_measured")[-1]["step"] == 8
    assert list(grown.series("loss")) == list(range(1, 9))
    for key in ("loss", "gradient_norm"):
        assert grown.series(key) == pytest.approx(fixed.series(key), abs=1e-5), key
    assert grown.series("tokens") == fixed.series("tokens")


def test_a_grown_batch_survives_the_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_growth, "read_memory", lambda _: PLENTY)
    root = write_container(tmp_path, GROWING)
    through = train_ranks(2, GROWING, write_container(tmp_path / "through", GROWING))[0]
    train_ranks(2, GROWING, root, sigterm_at={0: 4})
    marker = json.loads((root / "checkpoints/step-0000000004/COMPLETE.json").read_text())
    assert marker["micro_batch_size"] == 2
    again = train_ranks(2, GROWING, root)[0]
    assert [event["was"] for event in again.events("batch_grown")] == [2]
    expected = {step: loss for step, loss in through.series("loss").items() if step > 4}
    assert again.series("loss") == pytest.approx(expected, abs=1e-5)


def test_a_rank_without_memory_ends_the_start_and_the_next_one_goes_on_smaller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny_spec(steps=6, recipe={"micro_batch_size": 4}, checkpoint={"interval_seconds": 1e-6})
    root = write_container(tmp_path, spec)
    train_step = TrainingLoop.train_step

    def exhausted(loop: TrainingLoop, batches: Any, rate: float, *, step: int) -> Any:
        if loop.plan.micro_batch_size == 4 and step == 5:
            # On a GPU one rank is the first and leaves; the launcher ends the others.
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 3.00 GiB")
        return train_step(loop, batches, rate, step=step)

    def fails(world: World) -> tuple[str, str]:
        try:
            train_rank(world, spec, root)
        except TrainingError as error:
            return error.kind, str(error)
        raise AssertionError("it went on")

    monkeypatch.setattr(TrainingLoop, "train_step", exhausted)
    for kind, message in fork_ranks(2, fails):
        assert kind == "out_of_memory"
        assert message.startswith("out of memory with 4 sequences per rank and forward pass: ")
        assert "the next start uses 2" in message
    assert json.loads((root / "checkpoints" / LIMIT_FILE).read_text()) == {"micro_batch_size": 2}

    told: Told = train_ranks(2, spec, root)[0]
    assert 0 < told.events("resumed")[0]["step"] < 5
    assert told.events("batch_growth_limited")[0]["micro_batch_size"] == 2
    assert told.step == 6

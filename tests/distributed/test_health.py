"""Steps left out change nothing, and a run in 8 bits that finds no finite loss goes on in bf16."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.planning.run_spec import RunSpec
from tests.distributed.forked import fork_ranks, train_rank, train_ranks
from tests.training_scripts.tiny import tiny_shape, tiny_spec, write_container
from trainer.errors import TrainingError
from trainer.model import Decoder
from trainer.parallel import World

SHAPE = tiny_shape(intermediate_size=64, head_dim=16)


def spoil(monkeypatch: pytest.MonkeyPatch, *calls: int, precision: str | None = None) -> None:
    """Make the loss of some forward passes of training infinite."""
    forward = Decoder.forward
    seen = {"training": 0}

    def spoilt(model: Decoder, *inputs: Any) -> Any:
        loss = forward(model, *inputs)
        if not loss.requires_grad:
            return loss
        seen["training"] += 1
        eight_bit = any("Float8" in type(m).__name__ for m in model.modules())
        hit = seen["training"] in calls and (precision is None or eight_bit)
        return loss * math.inf if hit else loss

    monkeypatch.setattr(Decoder, "forward", spoilt)


def failure(spec: RunSpec, root: Path) -> tuple[str, str]:
    def fails(world: World) -> tuple[str, str]:
        try:
            train_rank(world, spec, root)
        except TrainingError as error:
            return error.kind, str(error)
        raise AssertionError("it went on")

    answers = fork_ranks(2, fails)
    assert answers[0] == answers[1]
    return str(answers[0][0]), str(answers[0][1])


def test_a_step_without_a_finite_loss_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny_spec(steps=4, limits={"loss_policy": "skip"})
    spoil(monkeypatch, 3)
    told = train_ranks(2, spec, write_container(tmp_path, spec))[0]
    assert [event["step"] for event in told.events("step_skipped")] == [2]
    assert list(told.series("loss")) == [1, 3, 4]
    assert all(math.isfinite(loss) for loss in told.series("loss").values())
    assert told.step == 4


def test_8_bits_fall_back_to_bf16_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tiny_spec(
        steps=6,
        shape=SHAPE,
        recipe={"precision": "fp8", "micro_batch_size": 4},
        checkpoint={"interval_seconds": 1e-6},
    )
    root = write_container(tmp_path, spec)
    spoil(monkeypatch, 3, 4, 5, precision="fp8")
    kind, message = failure(spec, root)
    assert kind == "internal"
    assert "up to step 5 without a finite loss in fp8" in message

    told = train_ranks(2, spec, root)[0]
    fallback = told.events("precision_fallback")[0]
    assert (fallback["was"], fallback["precision"], fallback["step"]) == ("fp8", "bf16", 5)
    assert told.step == 6
    assert all(math.isfinite(loss) for loss in told.series("loss").values())

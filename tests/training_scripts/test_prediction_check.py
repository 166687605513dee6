"""Every run says what was predicted and how it compares, and what cannot be compared."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from cdk_blackwell.planning.predictions import predict
from tests.training_scripts.tiny import tiny_spec
from trainer.parallel import World
from trainer.prediction_check import WARM_UP_STEPS, PredictionCheck

SPEC = tiny_spec()
PREDICTED = predict(SPEC.model, SPEC.layout, SPEC.recipe)


class Said(list[tuple[str, dict[str, Any]]]):
    """Events instead of printed lines."""

    def event(self, name: str, **details: Any) -> None:
        self.append((name, details))

    def comparisons(self) -> list[dict[str, Any]]:
        return [details for name, details in self if name == "predicted_against_measured"]


def check_on(
    device: str | None, monkeypatch: pytest.MonkeyPatch, *, ranks: int = 8
) -> tuple[PredictionCheck, Said]:
    said = Said()
    if device:
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: device)
    kind = torch.device("cuda", 0) if device else torch.device("cpu")
    world = World(rank=0, size=ranks, device=kind)
    check = PredictionCheck(SPEC, SPEC.layout, world, said)  # type: ignore[arg-type]
    check.predict(SPEC.recipe.micro_batch_size)
    return check, said


def test_the_prediction_is_the_planners(monkeypatch: pytest.MonkeyPatch) -> None:
    _, said = check_on(None, monkeypatch)
    ((name, details),) = said
    assert name == "predicted"
    assert details["tokens_per_second_per_gpu"] == pytest.approx(
        PREDICTED.tokens_per_second_per_gpu, abs=0.1
    )
    assert details["memory_reserved_gib"] == pytest.approx(PREDICTED.memory.reserved_gib, abs=1e-3)
    assert details["mfu"] == pytest.approx(100 * PREDICTED.throughput.mfu, abs=0.01)
    assert details["assumptions"] == list(PREDICTED.throughput.assumptions)


def test_on_b200_both_ratios_are_given_once_warm_and_at_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check, said = check_on("NVIDIA B200", monkeypatch)
    speed = PREDICTED.tokens_per_second_per_gpu
    reserved = PREDICTED.memory.reserved_gib
    memory = {"memory_allocated_gib": 0.1, "memory_reserved_gib": 2 * reserved}
    check.observe(5, tokens=1.0, seconds=100.0, memory=memory)
    for step in range(10, 41, 5):
        slower = 0.5 if step > 5 + WARM_UP_STEPS else 1.0
        check.observe(step, tokens=8 * speed * slower, seconds=1.0, memory={})
    check.conclude(40)
    first, last = said.comparisons()
    assert (first["step"], first["when"]) == (15, "after_warm_up")
    assert first["tokens_per_second_per_gpu"]["measured_over_predicted"] == 1.0
    assert first["memory_reserved_gib"]["measured_over_predicted"] == 2.0
    assert (last["step"], last["when"]) == (40, "end")
    assert last["tokens_per_second_per_gpu"]["measured_over_predicted"] == pytest.approx(
        (1 + 5 * 0.5) / 6, abs=1e-3
    )
    assert "not_comparable" not in last


@pytest.mark.parametrize(
    ("device", "speed", "memory", "reason"),
    [
        (None, False, False, "says nothing about a GPU's"),
        ("NVIDIA H200", False, True, "measured on NVIDIA H200"),
    ],
)
def test_elsewhere_there_is_a_reason_instead_of_a_ratio(
    device: str | None, speed: bool, memory: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check, said = check_on(device, monkeypatch)
    check.observe(3, tokens=800.0, seconds=2.0, memory={"memory_reserved_gib": 1.0})
    check.conclude(3)
    (only,) = said.comparisons()
    assert only["when"] == "end_within_warm_up"
    assert only["tokens_per_second_per_gpu"]["measured"] == 50.0
    ratio = only["tokens_per_second_per_gpu"]["measured_over_predicted"]
    assert (ratio is not None) == speed
    assert (only["memory_reserved_gib"]["measured_over_predicted"] is not None) == memory
    assert reason in only["not_comparable"]


def test_another_micro_batch_is_predicted_and_measured_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    check, said = check_on("NVIDIA B200", monkeypatch)
    check.observe(5, tokens=1.0, seconds=1.0, memory={"memory_reserved_gib": 9.0})
    check.predict(4)
    assert said[-1][1]["micro_batch_size"] == 4
    check.conclude(5)
    assert not said.comparisons()

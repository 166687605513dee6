"""A loss that jumps or is no number: warned of, left out or the end, as the policy says."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.planning.run_spec import LossPolicy
from tests.training_scripts.tiny import tiny_spec
from trainer.errors import TrainingError
from trainer.health import (
    FALL_BACK_AFTER,
    FALLBACK_FILE,
    LEAST_LOSSES,
    MOST_SKIPPED,
    SIGMAS,
    LossWatch,
)

CALM = [3.0 + 0.1 * (-1) ** step for step in range(LEAST_LOSSES)]
"""Mean 3, standard deviation 0.1016."""


class Run:
    """One start's watch, with what it said."""

    def __init__(self, folder: Path, policy: LossPolicy, precision: Any = "bf16") -> None:
        spec = tiny_spec(limits={"loss_policy": policy}, recipe={"precision": precision})
        self.said: list[str] = []
        self.watch = LossWatch(spec, self, folder=folder, writes=True)  # type: ignore[arg-type]
        self.step = 0

    def event(self, name: str, **_: Any) -> None:
        self.said.append(name)

    def see(self, *losses: float) -> list[bool]:
        kept = []
        for loss in losses:
            self.step += 1
            kept.append(self.watch.accept(self.step, loss, 1.0))
        return kept


@pytest.mark.parametrize(
    ("policy", "precision", "each"),
    [
        ("warn", "bf16", False),
        ("stop", "bf16", True),
        ("skip", "bf16", True),
        ("warn", "fp8", True),
        ("stop", "fp8", True),
    ],
)
def test_the_gpu_is_waited_for_only_where_a_step_may_not_count(
    policy: LossPolicy, precision: str, each: bool, tmp_path: Path
) -> None:
    assert Run(tmp_path, policy, precision).watch.judges_each_step is each


def test_warn_says_so_and_goes_on(tmp_path: Path) -> None:
    run = Run(tmp_path, "warn")
    run.see(*CALM)
    assert run.see(9.0, 3.0) == [True, True]
    assert run.said == ["loss_spike"]


def test_skip_leaves_the_step_out_and_its_loss_out_of_the_average(tmp_path: Path) -> None:
    run = Run(tmp_path, "skip")
    run.see(*CALM)
    assert run.see(9.0, 3.0, 9.0) == [False, True, False]
    assert run.said == ["step_skipped", "step_skipped"]


def test_stop_ends_the_run(tmp_path: Path) -> None:
    run = Run(tmp_path, "stop")
    run.see(*CALM)
    with pytest.raises(TrainingError, match=r"step 33 by loss_policy 'stop': loss 9 against 3 on"):
        run.see(9.0)


def test_a_resumed_run_holds_losses_against_those_before(tmp_path: Path) -> None:
    before = Run(tmp_path, "skip")
    before.see(*CALM)
    assert Run(tmp_path, "skip").see(9.0) == [True], "nothing is known yet"
    resumed = Run(tmp_path, "skip")
    resumed.watch.restore(before.watch.recent)
    assert resumed.see(9.0, 3.0) == [False, True]


def test_the_bound_is_six_standard_deviations(tmp_path: Path) -> None:
    run = Run(tmp_path, "skip")
    run.see(*CALM)
    deviation = 0.1 * math.sqrt(LEAST_LOSSES / (LEAST_LOSSES - 1))
    assert not run.watch.is_spike(3.0 + 0.999 * SIGMAS * deviation)
    assert run.watch.is_spike(3.0 + 1.001 * SIGMAS * deviation)
    assert not run.watch.is_spike(-9.0), "a fall is no spike"


def test_the_first_losses_are_never_spikes(tmp_path: Path) -> None:
    run = Run(tmp_path, "stop")
    assert all(run.see(*CALM[:-1], 900.0))


@pytest.mark.parametrize("policy", ["warn", "stop"])
@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_no_number_ends_a_run_whose_weights_it_has_spoilt(
    policy: LossPolicy, loss: float, tmp_path: Path
) -> None:
    with pytest.raises(TrainingError, match=r"diverged at step 1.*lower peak_learning_rate") as got:
        Run(tmp_path, policy).see(loss)
    assert got.value.kind == "user"


def test_a_gradient_that_is_no_number_counts_too(tmp_path: Path) -> None:
    run = Run(tmp_path, "skip")
    assert not run.watch.accept(1, 3.0, math.inf)


def test_skipping_has_an_end(tmp_path: Path) -> None:
    run = Run(tmp_path, "skip")
    assert run.see(*[math.nan] * (MOST_SKIPPED - 1)) == [False] * (MOST_SKIPPED - 1)
    with pytest.raises(TrainingError, match=f"after {MOST_SKIPPED - 1} steps left out in a row"):
        run.see(math.nan)


def test_steps_left_out_for_a_spike_do_not_count_towards_bf16(tmp_path: Path) -> None:
    run = Run(tmp_path, "skip", "fp8")
    run.see(*CALM)
    spikes = [90.0] * (FALL_BACK_AFTER - 1)
    assert run.see(*spikes, math.nan) == [False] * FALL_BACK_AFTER
    assert not (tmp_path / FALLBACK_FILE).exists()


@pytest.mark.parametrize("policy", ["warn", "skip"])
def test_8_bits_are_given_up_only_when_it_happens_in_a_row(
    policy: LossPolicy, tmp_path: Path
) -> None:
    run = Run(tmp_path, policy, "fp8")
    assert run.see(math.nan, math.nan, 3.0) == [False, False, True]
    assert not (tmp_path / FALLBACK_FILE).exists()
    with pytest.raises(TrainingError, match="the next start goes on in bf16") as got:
        run.see(*[math.nan] * FALL_BACK_AFTER)
    assert got.value.kind == "internal", "the controller tries again after this class"
    assert (tmp_path / FALLBACK_FILE).exists()

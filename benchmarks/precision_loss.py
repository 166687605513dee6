"""Loss curves of every precision on real text, beside fp32's and bf16's.

``python -m benchmarks.precision_loss --json benchmarks/data/precision_loss.json`` trains the same
small model with the trainer itself, once a precision, with the same data in the same order. 8-bit
products are emulated on CPU: the same rounding, higher-precision arithmetic. What kernels of a GPU
add to it was not measured.
"""

from __future__ import annotations

import contextlib
import io
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, get_args

from benchmarks.measure import arguments, machine, report
from benchmarks.training_text import (
    container,
    digest,
    one_rank,
    small_spec,
    text_tokens,
    write_dataset,
)
from cdk_blackwell.planning.run_spec import Precision
from trainer.parallel import World
from trainer.rank_state import RankReporter
from trainer.run import train
from trainer.signals import StopFlag

PRECISIONS: Final[tuple[Precision, ...]] = get_args(Precision)
STEPS: Final = 300
FIRST_STEPS: Final = 20
"""Which the test repeats."""
WINDOW: Final = 20
"""Steps whose mean is compared: single steps differ by what noise does to the path."""


def loss_curve(precision: Precision, *, steps: int, world: World, root: Path) -> list[float]:
    """Training loss of the first ``steps`` of `STEPS` steps, in nats per byte."""
    spec = small_spec(
        steps=STEPS,
        recipe={"precision": precision},
        hidden_size=64,
        layers=2,
        sequence_length=64,
    )
    ranks = StepCounter(steps=steps)
    where = container(root / precision, dataset=root / "dataset")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        train(spec, where, world, stop=ranks.stop, ranks=ranks)
    records = [json.loads(line) for line in printed.getvalue().splitlines()]
    by_step = {r["step"]: r["loss"] for r in records if "loss" in r and "event" not in r}
    return [by_step[step] for step in range(1, steps + 1)]


class StepCounter(RankReporter):
    """Asks for the end after a number of steps, leaving the schedule as it is."""

    def __init__(self, *, steps: int) -> None:
        super().__init__(rank=0, folder=None)
        self.stop = StopFlag(self)
        self._steps = steps

    def advance(self, step: int) -> None:
        """As for any rank, and the request when the steps are done."""
        super().advance(step)
        if step >= self._steps:
            self.stop.requested, self.stop.requested_at = True, time.monotonic()


def deviations(curve: Sequence[float], reference: Sequence[float]) -> list[float]:
    """Relative difference of the mean loss of each `WINDOW` of steps."""
    return [
        statistics.fmean(curve[start : start + WINDOW])
        / statistics.fmean(reference[start : start + WINDOW])
        - 1
        for start in range(0, len(reference) - WINDOW + 1, WINDOW)
    ]


def main() -> None:
    """Train, compare, print and write."""
    options = arguments(__doc__.splitlines()[0], runs=1).parse_args()
    tokens = text_tokens()
    curves: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_dataset(root / "dataset", tokens)
        with one_rank(root / "store") as world:
            for precision in PRECISIONS:
                curves[precision] = loss_curve(precision, steps=STEPS, world=world, root=root)
                print(f"{precision:12s} {statistics.fmean(curves[precision][-WINDOW:]):.4f}")
                sys.stdout.flush()
    figures: dict[str, Any] = {
        "text_sha256": digest(tokens),
        "steps": STEPS,
        "window": WINDOW,
        "loss": {name: [round(loss, 4) for loss in curve] for name, curve in curves.items()},
        "largest_deviation_from_bf16": {
            name: round(max(map(abs, deviations(curve, curves["bf16"]))), 5)
            for name, curve in curves.items()
        },
        "final_deviation_from_bf16": {
            name: round(deviations(curve, curves["bf16"])[-1], 5) for name, curve in curves.items()
        },
    }
    for name, value in figures["largest_deviation_from_bf16"].items():
        print(
            f"{name:12s} within {value:.2%} of bf16, at the end "
            f"{figures['final_deviation_from_bf16'][name]:+.2%}"
        )
    report("precision_loss", figures, machine("torch", "torchao"), file=options.json)


if __name__ == "__main__":
    main()

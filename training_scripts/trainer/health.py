"""What to do about a loss that jumps or is no number: warn, leave the step out, or stop.

A step's loss is a spike when it lies more than `SIGMAS` standard deviations above the mean of the
last `WINDOW` ones; both values are those of OLMo-core's ``SkipStepOptimizer``. Checkpoints carry
the window, so that a resumed run decides as one that went on.

An 8-bit format may run out of range where bf16 does not. So in 8 bits steps without a finite loss
are left out, unless the policy is to stop, and if that does not help, the run goes on in bf16: the
decision is left beside the checkpoints and the workers start again from the newest one.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from cdk_blackwell.planning.run_spec import EIGHT_BIT, LossPolicy, RunSpec
from trainer.errors import TrainingError, user_error
from trainer.metrics import Reporter
from trainer.parallel import World

WINDOW: Final = 128
SIGMAS: Final = 6.0
LEAST_LOSSES: Final = 32
"""Before so many losses are known, none is called a spike: the first ones fall fast."""
MOST_SKIPPED: Final = 8
"""Steps left out in a row before the run stops: by then it is no single bad batch."""
FALL_BACK_AFTER: Final = 3
"""Steps without a finite loss in a row before a run in 8 bits turns to bf16."""
FALLBACK_FILE: Final = "precision_fallback.json"


class LossWatch:
    """The losses of a run; every rank holds one, is given the same, and decides alike."""

    def __init__(self, spec: RunSpec, report: Reporter, *, folder: Path, writes: bool) -> None:
        """``folder`` keeps the decision to fall back, which the rank that ``writes`` leaves."""
        self._policy: LossPolicy = spec.limits.loss_policy
        self._eight_bit = spec.recipe.precision in EIGHT_BIT
        self._precision = spec.recipe.precision
        self._rate = spec.recipe.optimizer.peak_learning_rate
        self._report, self._file, self._writes = report, folder / FALLBACK_FILE, writes
        self._losses: deque[float] = deque(maxlen=WINDOW)
        self._left_out_in_a_row = 0
        self._not_finite_in_a_row = 0

    @property
    def recent(self) -> tuple[float, ...]:
        """The window, oldest first."""
        return tuple(self._losses)

    def restore(self, recent: Sequence[float]) -> None:
        """Go on with a checkpoint's window."""
        self._losses.extend(recent)

    @property
    def judges_each_step(self) -> bool:
        """Whether a step may not count, so that its loss must be known before the optimizer runs.

        This waits for the GPU once per step. Otherwise losses are looked at with each metrics line,
        and checkpoints may hold what came after a spike.
        """
        return self._policy != "warn" or self._eight_bit

    def accept(self, step: int, loss: float, norm: float | None) -> bool:
        """Whether the step counts; TrainingError when the run has to stop.

        :param loss: mean over the global batch.
        :param norm: of its gradients, before clipping; None where only losses are known.
        """
        if not math.isfinite(loss) or not (norm is None or math.isfinite(norm)):
            return self._not_finite(step, loss, norm)
        self._not_finite_in_a_row = 0
        if self.is_spike(loss):
            mean = statistics.fmean(self._losses)
            text = f"loss {loss:.4g} against {mean:.4g} on average before"
            if self._policy == "stop":
                raise user_error(f"training stopped at step {step} by loss_policy 'stop': {text}")
            if self._policy == "skip":
                return self._leave_out(step, text)
            self._report.event("loss_spike", step=step, loss=loss, reason=text)
        self._losses.append(loss)
        self._left_out_in_a_row = 0
        return True

    def is_spike(self, loss: float) -> bool:
        """Whether it lies far above the losses before it."""
        if len(self._losses) < LEAST_LOSSES:
            return False
        deviation = statistics.stdev(self._losses)
        return loss > statistics.fmean(self._losses) + SIGMAS * deviation

    def _not_finite(self, step: int, loss: float, norm: float | None) -> bool:
        text = f"loss {loss:.4g}, gradient norm {'unknown' if norm is None else f'{norm:.4g}'}"
        if self._policy == "stop" or not self.judges_each_step:
            raise self._diverged(step, text)
        self._not_finite_in_a_row += 1
        if self._eight_bit and self._not_finite_in_a_row >= FALL_BACK_AFTER:
            raise self._fall_back(step, text)
        return self._leave_out(step, text)

    def _leave_out(self, step: int, text: str) -> bool:
        self._left_out_in_a_row += 1
        if self._left_out_in_a_row >= MOST_SKIPPED:
            raise self._diverged(step, f"{text}, after {MOST_SKIPPED - 1} steps left out in a row")
        self._report.event("step_skipped", step=step, in_a_row=self._left_out_in_a_row, reason=text)
        return False

    def _diverged(self, step: int, text: str) -> TrainingError:
        return user_error(
            f"training diverged at step {step}: {text}; lower peak_learning_rate "
            f"({self._rate:g}) or lengthen the warm-up. Older checkpoints are kept"
        )

    def _fall_back(self, step: int, text: str) -> TrainingError:
        if self._writes:
            self._file.parent.mkdir(parents=True, exist_ok=True)
            draft = self._file.with_suffix(".tmp")
            draft.write_text(json.dumps({"precision": "bf16", "step": step, "reason": text}))
            draft.replace(self._file)
        # Of the class that another start may mend, as this one does.
        return TrainingError(
            "internal",
            f"{FALL_BACK_AFTER} steps in a row up to step {step} without a finite loss in "
            f"{self._precision} ({text}): the next start goes on in bf16",
        )


def spec_in_use(spec: RunSpec, world: World, report: Reporter, *, folder: Path) -> RunSpec:
    """The run, in bf16 if an earlier start has fallen back to it."""
    if spec.recipe.precision not in EIGHT_BIT:
        return spec
    told = world.from_first(_read_fallback(folder / FALLBACK_FILE))
    if told is None:
        return spec
    step, reason = told
    report.event(
        "precision_fallback", was=spec.recipe.precision, precision="bf16", step=step, reason=reason
    )
    return replace(spec, recipe=replace(spec.recipe, precision="bf16"))


def _read_fallback(file: Path) -> tuple[int, str] | None:
    """A damaged file counts as none: 8 bits are tried again, and given up again."""
    try:
        value = json.loads(file.read_text())
        return int(value["step"]), str(value["reason"])
    except (OSError, ValueError, KeyError, TypeError):
        return None

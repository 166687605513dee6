"""Stopping within the grace: between micro-batches, and with a checkpoint only if there is time.

A step can take longer than the two minutes that SageMaker leaves between SIGTERM and SIGKILL. So
ranks agree between micro-batches, drop the step they are in, and save the last whole one. A resumed
run reads the dropped step's sequences again, so the result is the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainer.checkpoint import Checkpointer
from trainer.metrics import Reporter
from trainer.parallel import World
from trainer.signals import StopFlag, agree

GRACE_SECONDS: Final = 100.0
"""From SIGTERM to the last moment a save may take. torchrun kills after 110 s and SageMaker after
120; the rest is for leaving the group and for the launcher's account."""
CHECK_SECONDS: Final = 5.0
"""About how often ranks ask each other within a step; asking costs them a CPU message."""


class StepDropped(Exception):  # noqa: N818 - nothing went wrong
    """All ranks agreed to stop within a step, which has left no trace in the model."""


@dataclass(kw_only=True)
class StopCheck:
    """Whether any rank has been asked to stop, known to all at the same micro-batch."""

    world: World
    stop: StopFlag
    stride: int = 1
    """Micro-batches between two questions; the same on all ranks."""

    def learn(self, *, step_seconds: float, micro_batches: int) -> None:
        """Set the stride by the duration of a step that all ranks agreed on."""
        if step_seconds > 0:
            self.stride = max(1, int(micro_batches * CHECK_SECONDS / step_seconds))

    def asked(self, finished: int) -> bool:
        """After so many micro-batches of a step; all ranks call it together."""
        if finished < 1 or finished % self.stride:
            return False
        return agree(self.world.maximum, self.stop.requested)[0]


@dataclass(frozen=True, kw_only=True)
class Time:
    """What is left of the grace, agreed by all ranks."""

    left: float

    @classmethod
    def agreed(cls, world: World, stop: StopFlag) -> Time:
        """By the rank that has known for longest."""
        return cls(left=GRACE_SECONDS - world.maximum(stop.seconds_since())[0])


def finish_current(
    checkpointer: Checkpointer, world: World, stop: StopFlag, report: Reporter
) -> bool:
    """Wait, within the grace, for a checkpoint that is being written; False when time is over."""
    left = Time.agreed(world, stop).left
    if checkpointer.wait(max(0.0, left)):
        return True
    report.event("checkpoint_abandoned", last_complete_step=checkpointer.last_complete_step)
    return False


def may_save(checkpointer: Checkpointer, world: World, stop: StopFlag, report: Reporter) -> bool:
    """Whether one more save is predicted to finish; without any checkpoint it is always tried."""
    left = Time.agreed(world, stop).left
    predicted = world.maximum(checkpointer.predicted_seconds)[0]
    if predicted <= left or not checkpointer.last_complete_step:
        return True
    report.event(
        "stop_without_save",
        predicted_seconds=round(predicted, 1),
        seconds_left=round(left, 1),
        last_complete_step=checkpointer.last_complete_step,
    )
    return False

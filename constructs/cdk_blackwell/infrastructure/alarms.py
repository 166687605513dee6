"""What is worth waking somebody for: thresholds as data, and one table of alarms made from them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final, Literal

from cdk_blackwell.infrastructure.kinds import refuse_token
from cdk_blackwell.planning.hardware import P6_B200

PERIOD_MINUTES: Final = 5
"""The controller publishes once in this time."""


@dataclass(frozen=True, kw_only=True)
class AlarmThresholds:
    """When a job's alarms go off; None switches one off.

    The defaults are this project's choice: late enough for a healthy run to stay silent, early
    enough to save hours of an instance that costs about 100 USD each. They were never tried on a
    real P6-B200.
    """

    no_progress_minutes: float | None = 30
    """Minutes without a finished optimizer step; the start of training counts."""
    gpu_utilization_percent: float | None = 50
    """Mean use of all GPUs below this for half an hour of stepping (100 is all of every GPU)."""
    memory_percent: float | None = 97
    """Reserved share of a GPU's visible memory, on the fullest rank."""
    loss_not_finite: int | None = 1
    """Reports of a training loss that is NaN or infinite."""
    data_wait_percent: float | None = 5
    """Share of step time spent waiting for data, for half an hour."""
    checkpoint_age_minutes: float | None = 60
    """Minutes since the newest complete checkpoint: what a crash would cost."""
    failed_attempts: int | None = 1
    """Failed attempts within five minutes; the controller may go on after one."""
    spend_percent: float | None = 80
    """Share of ``max_cost_usd`` that is spent. Without a ceiling and a price there is no alarm."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value is None:
                continue
            refuse_token(field.name, value)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(
                    f"{field.name} is {value!r}; give a number above 0, or None for no alarm"
                )
            if field.name.endswith("_percent") and value > 100:
                raise ValueError(f"{field.name} is {value:g}; a share is at most 100 percent")


@dataclass(frozen=True, kw_only=True)
class RunAlarm:
    """One alarm on what the controller publishes."""

    construct_id: str
    threshold: str
    """Field of ``AlarmThresholds``."""
    keys: tuple[str, ...]
    """Keys of the metric tables that it reads."""
    scale: Callable[[float, float | None], float | None]
    """From the threshold and ``max_cost_usd`` to the metric's own unit; None: no alarm."""
    statistic: Literal["Maximum", "Minimum"]
    side: Literal["above", "below"]
    periods: int
    """Of five minutes, that many on the wrong side; of several, one in between may be silent."""
    text: str
    """What happened and where to look; ``{job}`` and ``{limit}`` are filled in."""
    expression: str | None = None
    """Metric math over the keys. Default: the one metric itself."""


def _minutes(value: float, ceiling: float | None) -> float:
    return value * 60


def _same(value: float, ceiling: float | None) -> float:
    return value


def _memory(value: float, ceiling: float | None) -> float:
    return value / 100 * P6_B200.visible_gib


def _spend(value: float, ceiling: float | None) -> float | None:
    return None if ceiling is None else value / 100 * ceiling


RUN_ALARMS: Final = (
    RunAlarm(
        construct_id="NoProgress",
        threshold="no_progress_minutes",
        keys=("step_age_seconds",),
        scale=_minutes,
        statistic="Maximum",
        side="above",
        periods=1,
        text="{job} finished no optimizer step for {limit:g} minutes: it hangs or never began. "
        "See the last events on the dashboard, and stop the run if it does not move.",
    ),
    RunAlarm(
        construct_id="LowGpuUse",
        threshold="gpu_utilization_percent",
        keys=("gpu_utilization",),
        scale=_same,
        statistic="Minimum",
        side="below",
        periods=6,
        text="The GPUs of {job} were used less than {limit:g} percent for 30 minutes. Compare "
        "data wait and step time on the dashboard: paid hours train nothing.",
    ),
    RunAlarm(
        construct_id="MemoryNearLimit",
        threshold="memory_percent",
        keys=("memory_reserved_gib",),
        scale=_memory,
        statistic="Maximum",
        side="above",
        periods=1,
        text="{job} reserves over {limit:g} percent of a GPU's memory; fragmentation can end it "
        "as out of memory. Lower micro_batch_size or checkpoint more activations.",
    ),
    RunAlarm(
        construct_id="LossNotFinite",
        threshold="loss_not_finite",
        keys=("loss_not_finite",),
        scale=_same,
        statistic="Maximum",
        side="above",
        periods=1,
        text="The training loss of {job} is NaN or infinite: it diverged. Go on from an older "
        "checkpoint with a lower peak_learning_rate, or with bf16.",
    ),
    RunAlarm(
        construct_id="DataWait",
        threshold="data_wait_percent",
        keys=("data_wait_seconds", "step_seconds"),
        expression="100 * data_wait_seconds / step_seconds",
        scale=_same,
        statistic="Maximum",
        side="above",
        periods=6,
        text="{job} waits for data over {limit:g} percent of the time: raise the file system's "
        "throughput_per_tib, or look for another reader of it.",
    ),
    RunAlarm(
        construct_id="CheckpointAge",
        threshold="checkpoint_age_minutes",
        keys=("checkpoint_age_seconds",),
        scale=_minutes,
        statistic="Maximum",
        side="above",
        periods=1,
        text="The newest complete checkpoint of {job} is older than {limit:g} minutes: a crash "
        "would lose all since. See the last events for failed saves.",
    ),
    RunAlarm(
        construct_id="SpendNearCeiling",
        threshold="spend_percent",
        keys=("spend_usd",),
        scale=_spend,
        statistic="Maximum",
        side="above",
        periods=1,
        text="{job} has spent {limit:g} percent of max_cost_usd: decide whether it goes on.",
    ),
)

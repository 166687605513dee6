"""Twelve hours of a run that never was: sample data for the picture of the dashboard.

The speed, memory and cost are near what the plan predicts, since nothing was measured on a B200.
What happens is chosen to show what the dashboard is for: an instance fails, the controller resumes
from the newest checkpoint, and in the last hour the run waits for its data.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cdk_blackwell.infrastructure.alarms import PERIOD_MINUTES
from cdk_blackwell.planning.metrics import METRICS, RUN_METRICS
from cdk_blackwell.planning.plan import Plan

MINUTES: Final = range(0, 12 * 60 + 1, PERIOD_MINUTES)
CHECKPOINT_MINUTES: Final = 15
FIRST_STEP, FAILURE, NEXT_ATTEMPT, RESUMED, DATA_SLOW = 15, 395, 405, 425, 665
"""Minutes at which the sample's events happen."""
JOB_NAMES: Final = ("0a1b2c3d-2027-01-15-a-1", "0a1b2c3d-2027-01-15-a-2")
"""What a launch adds to the job's prefix: hash of the stack, run id, attempt."""

Points = list[float | None]
"""One value for each of ``MINUTES``; None where nothing was published."""


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The sample's numbers by CloudWatch name, and the use of each instance by its host's name."""

    metrics: Mapping[str, Points]
    hosts: Mapping[str, Points]
    events: tuple[tuple[int, int, str], ...]
    """Minute, attempt from 0, and the trainer's line; the newest first."""


def sample(plan: Plan, *, job: str, instances: int, batch_tokens: int, hourly_usd: float) -> Sample:
    """What the job of ``plan`` might publish."""
    chance = random.Random(7)
    names = {metric.key: metric.name for metric in (*METRICS, *RUN_METRICS)}
    rows: dict[str, Points] = {name: [] for name in names.values()}
    predicted = plan.throughput.tokens_per_second_per_gpu * instances * 8
    tokens, saved_tokens, spent, saved_at = 0.0, 0.0, 0.0, FIRST_STEP
    held_out: float | None = None
    """Measured every half hour; published again until there is a newer one."""
    for minute in MINUTES:
        stepping = FIRST_STEP <= minute < FAILURE or minute >= RESUMED
        held = minute < FAILURE or minute >= NEXT_ATTEMPT
        spent += instances * hourly_usd * PERIOD_MINUTES / 60 * held
        if minute == RESUMED:
            tokens, saved_at = saved_tokens, minute
        values: dict[str, float | None] = {
            "running_instances": instances if held else 0,
            "spend_usd": spent,
            "loss_not_finite": 0,
        }
        if stepping:
            late = minute >= DATA_SLOW
            if minute - saved_at >= CHECKPOINT_MINUTES:
                saved_at, saved_tokens = minute - 1, tokens
            speed = predicted * (0.88 if late else 0.965) * chance.gauss(1, 0.006)
            tokens += speed * 60 * PERIOD_MINUTES
            loss = 2.02 + 8.8 / (1 + tokens / 9e7) ** 0.85 + chance.gauss(0, 0.012)
            if minute % 30 == 0 and minute > FIRST_STEP + PERIOD_MINUTES:
                held_out = loss + 0.04
            step = batch_tokens / speed
            reserved = 0.965 * plan.memory.reserved_gib
            values |= {
                "loss": loss,
                "validation_loss": held_out,
                "tokens_per_second": speed,
                "mfu": 100 * plan.throughput.mfu * speed / predicted,
                "gpu_utilization": (84 if late else 93) + chance.gauss(0, 0.7),
                "step_seconds": step,
                "data_wait_seconds": step * (0.092 if late else 0.006) * chance.gauss(1, 0.04),
                "memory_reserved_gib": reserved,
                "memory_allocated_gib": reserved - 7 + chance.gauss(0, 0.3),
                "checkpoint_age_seconds": 60 * (minute - saved_at),
                "step_age_seconds": chance.uniform(5, 60),
            }
        for key, name in names.items():
            rows[name].append(values.get(key))
    rows["TriggeredRules"] = [1.0 if minute == FAILURE else None for minute in MINUTES]
    return Sample(
        metrics=rows,
        hosts=_hosts(rows["GpuUtilization"], job, instances, chance),
        events=_events(),
    )


def _hosts(use: Points, job: str, instances: int, chance: random.Random) -> dict[str, Points]:
    """SageMaker adds up the percentages of an instance's eight GPUs."""
    spans = (range(FAILURE), range(FAILURE, MINUTES.stop))
    return {
        f"{job}-{name}/algo-{host + 1}": [
            None
            if value is None or minute not in span
            else 8 * (value - (4 if host == 2 else 0) + chance.gauss(0, 0.5))
            for minute, value in zip(MINUTES, use, strict=True)
        ]
        for name, span in zip(JOB_NAMES, spans, strict=True)
        for host in range(instances)
    }


def _events() -> tuple[tuple[int, int, str], ...]:
    """Lines as the trainer prints them."""
    return (
        (713, 1, '{"cdk_blackwell": "event", "event": "checkpoint", "step": 2400}'),
        (698, 1, '{"cdk_blackwell": "event", "event": "checkpoint", "step": 2350}'),
        (
            681,
            1,
            '{"cdk_blackwell": "event", "event": "straggler", "step": 2291, "rank": 17, '
            '"ratio": 1.214}',
        ),
        (
            RESUMED,
            1,
            '{"cdk_blackwell": "event", "event": "resumed", "step": 1300, "tokens": 5452595200, '
            '"ranks_then": 32}',
        ),
        (391, 0, '{"cdk_blackwell": "event", "event": "checkpoint", "step": 1300}'),
    )

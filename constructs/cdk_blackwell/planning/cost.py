"""Hours and money. A price is only ever the user's own number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.intervals import (
    BLOCKED_SECONDS,
    checkpoint_interval_seconds,
    expected_loss,
)
from cdk_blackwell.planning.model_shape import ModelShape

STOP_GRACE_SECONDS: Final = 120
"""SageMaker's time between SIGTERM and SIGKILL."""
UPLOAD_SECONDS: Final = 1800
"""Allowance for uploading checkpoints and the export after training ends; billed time."""
CHECKPOINT_BYTES: Final = 12
"""Per parameter: fp32 weight and AdamW's two moments."""


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """Predicted time and money for all of ``train_tokens``."""

    hours: float
    """Of training, without failures."""
    days: float
    usd: float | None
    """For ``hours``; None when no price was given."""
    hourly_price_usd: float | None
    """Per instance."""
    instance_hours: float
    """Hours times instances: what a price per instance and hour multiplies."""
    checkpoint_gib: float
    """One complete checkpoint, all ranks together."""
    checkpoint_interval_seconds: float
    expected_failures: float
    """Interruptions of the whole run."""
    lost_hours: float
    """Expected on top of ``hours``: work done twice, restarts, time blocked by checkpoints."""
    lost_usd: float | None
    total_hours: float
    """With what is expected to be lost."""
    total_usd: float | None


def checkpoint_bytes(model: ModelShape) -> int:
    """Weights and optimizer state of one checkpoint."""
    return CHECKPOINT_BYTES * model.parameter_count


def estimate_cost(
    *,
    model: ModelShape,
    train_tokens: int,
    tokens_per_second: float,
    instance_count: int,
    hourly_price_usd: float | None,
    blocked_seconds: float = BLOCKED_SECONDS,
) -> CostEstimate:
    """For ``tokens_per_second`` over all GPUs together.

    :param hourly_price_usd: of one instance; None leaves all money None.
    :param blocked_seconds: that training stands still per checkpoint.
    """
    gpus = instance_count * P6_B200.gpus
    hours = train_tokens / tokens_per_second / 3600
    interval = checkpoint_interval_seconds(gpus, blocked_seconds=blocked_seconds)
    loss = expected_loss(
        hours=hours, gpus=gpus, interval_seconds=interval, blocked_seconds=blocked_seconds
    )

    def money(span: float) -> float | None:
        return None if hourly_price_usd is None else span * instance_count * hourly_price_usd

    return CostEstimate(
        hours=hours,
        days=hours / 24,
        usd=money(hours),
        hourly_price_usd=hourly_price_usd,
        instance_hours=hours * instance_count,
        checkpoint_gib=checkpoint_bytes(model) / 2**30,
        checkpoint_interval_seconds=interval,
        expected_failures=loss.failures,
        lost_hours=loss.hours,
        lost_usd=money(loss.hours),
        total_hours=hours + loss.hours,
        total_usd=money(hours + loss.hours),
    )


def worst_case_usd(
    *,
    max_runtime_seconds: float,
    instance_count: int,
    hourly_price_usd: float,
    stop_grace_seconds: float = STOP_GRACE_SECONDS,
    upload_seconds: float = UPLOAD_SECONDS,
    keep_alive_seconds: float = 0.0,
) -> float:
    """The most that one launch can cost: run time, stop grace, upload and keep-alive."""
    seconds = max_runtime_seconds + stop_grace_seconds + upload_seconds + keep_alive_seconds
    return seconds / 3600 * instance_count * hourly_price_usd

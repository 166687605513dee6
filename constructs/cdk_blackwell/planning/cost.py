"""Hours and money. A price is only ever the user's own number."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

STOP_GRACE_SECONDS: Final = 120
"""SageMaker's time between SIGTERM and SIGKILL."""
UPLOAD_SECONDS: Final = 1800
"""Allowance for uploading checkpoints and the export after training ends; billed time."""


@dataclass(frozen=True, kw_only=True)
class CostEstimate:
    """Predicted time and money for all of ``train_tokens``, without failures."""

    hours: float
    usd: float | None
    """None when no price was given."""
    hourly_price_usd: float | None
    """Per instance."""


def estimate_cost(
    *,
    train_tokens: int,
    tokens_per_second: float,
    instance_count: int,
    hourly_price_usd: float | None,
) -> CostEstimate:
    """``tokens_per_second`` is over all GPUs together."""
    hours = train_tokens / tokens_per_second / 3600
    usd = None if hourly_price_usd is None else hours * instance_count * hourly_price_usd
    return CostEstimate(hours=hours, usd=usd, hourly_price_usd=hourly_price_usd)


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

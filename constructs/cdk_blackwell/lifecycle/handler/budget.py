"""Money: what a run may still spend, turned into the run time of its next attempt.

SageMaker bills what an attempt held instances for (``BillableTimeInSeconds``). What the ended
attempts cost is taken from the ceiling; the rest must pay for the next attempt at its worst, so
that what was spent and what is committed together never pass the ceiling. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.planning.cost import STOP_GRACE_SECONDS, UPLOAD_SECONDS

MINIMUM_ATTEMPT_SECONDS: Final = 900
"""An attempt with less time than this loads, trains a little and stops: not worth its money."""


class Ended(Protocol):
    """An attempt that is over, as SageMaker tells of it or as it was recorded."""

    @property
    def billed_seconds(self) -> float | None:
        """Per instance; None where SageMaker did not say."""

    @property
    def trained(self) -> bool:
        """Whether it reached training, and so can have been billed."""


def run_time_limit(definition: JobDefinition) -> int:
    """``MaxRuntimeInSeconds`` of the request: the most one attempt may take."""
    return int(definition.request["StoppingCondition"]["MaxRuntimeInSeconds"])


def overhead_seconds(definition: JobDefinition) -> int:
    """Billed beyond the run time at the worst: stop grace, upload and keep-alive."""
    return STOP_GRACE_SECONDS + UPLOAD_SECONDS + _keep_alive_seconds(definition)


def _keep_alive_seconds(definition: JobDefinition) -> int:
    return int(definition.request["ResourceConfig"].get("KeepAlivePeriodInSeconds", 0))


def least_seconds(definition: JobDefinition) -> int:
    """Run time below which an attempt is not worth its start; a shorter limit is itself enough."""
    return min(MINIMUM_ATTEMPT_SECONDS, run_time_limit(definition))


def worst_billed_seconds(definition: JobDefinition) -> int:
    """The most one attempt can be billed; assumed where SageMaker does not say what it was."""
    return run_time_limit(definition) + overhead_seconds(definition)


def billed(definition: JobDefinition, ended: Ended) -> float:
    """Seconds per instance that an attempt is billed for; the most possible where unknown."""
    if ended.billed_seconds is not None:
        return ended.billed_seconds
    return float(worst_billed_seconds(definition)) if ended.trained else 0.0


def spent_usd(definition: JobDefinition, billed: Iterable[float]) -> float | None:
    """What attempts that were billed for these seconds cost; None without a price."""
    price = definition.hourly_price_usd
    if price is None:
        return None
    return sum(billed) / 3600 * definition.instance_count * price


def affordable_seconds(definition: JobDefinition, billed: Iterable[float]) -> int:
    """Run time that the next attempt may have after attempts billed for ``billed`` seconds each.

    At most the request's own; 0 or less when the ceiling is used up. Without a ceiling, or at no
    marginal price (under a training plan), the request's own limit stands.
    """
    limit = run_time_limit(definition)
    ceiling, price = definition.max_cost_usd, definition.hourly_price_usd
    if ceiling is None or not price:
        return limit
    # A warm pool may keep an ended attempt's instances, at the same price, until it is over.
    kept = _keep_alive_seconds(definition)
    spent = spent_usd(definition, [each + kept for each in billed if each > 0])
    assert spent is not None
    seconds = (ceiling - spent) / (definition.instance_count * price) * 3600
    return min(limit, int(seconds) - overhead_seconds(definition))

"""Why an attempt's run time was over, and when the next attempt can have more.

An attempt gets less than max_runtime where money or a training plan leave less. Its end looks the
same to SageMaker, but what follows differs.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdk_blackwell.lifecycle.handler.budget import (
    affordable_seconds,
    least_seconds,
    run_time_limit,
)
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.errors import LaunchRefused
from cdk_blackwell.lifecycle.handler.jobs import Observation
from cdk_blackwell.lifecycle.handler.records import Cause
from cdk_blackwell.lifecycle.handler.resume import find_cause
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.lifecycle.handler.training_plan import TimeLeft, plan_arn, time_left


def cause_of_end(
    services: Services,
    definition: JobDefinition,
    seen: Observation,
    billed_before: Iterable[float],
) -> Cause:
    """The table's cause for a terminal observation, told apart by what limited the run time.

    :param billed_before: seconds that each earlier attempt of the run was billed for.
    """
    cause = find_cause(seen)
    limit = seen.run_seconds
    if cause == "run_time_used_up" and limit is not None and limit < run_time_limit(definition):
        paid_for = affordable_seconds(definition, billed_before)
        cause = "money_used_up" if limit >= paid_for else "plan_ended"
    if cause == "plan_ended" and next_block(services, definition) is not None:
        return "plan_block_used_up"
    return cause


def next_block(services: Services, definition: JobDefinition) -> TimeLeft | None:
    """Time that the job's training plan still has for an attempt; None when it has none."""
    arn, least = plan_arn(definition), least_seconds(definition)
    if arn is None:
        return None
    try:
        left = time_left(services.jobs.training_plan(arn), services.clock.now(), least=least)
    except LaunchRefused:
        return None  # It is over, or gone.
    return left if left.seconds >= least else None

"""Why an attempt's run time was over. Pure.

An attempt gets less than max_runtime where money or a training plan leave less. Its end looks the
same to SageMaker, but what a person should do about it differs.
"""

from __future__ import annotations

from collections.abc import Iterable

from cdk_blackwell.lifecycle.handler.budget import affordable_seconds, run_time_limit
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.jobs import Observation
from cdk_blackwell.lifecycle.handler.records import Cause
from cdk_blackwell.lifecycle.handler.resume import find_cause
from cdk_blackwell.lifecycle.handler.training_plan import plan_arn


def cause_of_end(
    definition: JobDefinition, seen: Observation, billed_before: Iterable[float]
) -> Cause:
    """The table's cause for a terminal observation, told apart by what limited the run time.

    :param billed_before: seconds that each earlier attempt of the run was billed for.
    """
    cause = find_cause(seen)
    limit = seen.run_seconds
    if cause != "run_time_used_up" or limit is None or limit >= run_time_limit(definition):
        return cause
    by_money = plan_arn(definition) is None or limit >= affordable_seconds(
        definition, billed_before
    )
    return "money_used_up" if by_money else "plan_ended"

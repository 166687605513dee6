"""The end of a training plan's time, which an attempt must not run into. Pure.

A plan ends at 11:30 UTC, and SageMaker ends what still runs 30 minutes before (SageMaker developer
guide, training plans). So an attempt is made to stop of itself before that, with its checkpoint
uploaded; and one that could not do anything any more is not launched.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdk_blackwell.lifecycle.handler.clock import utc
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.errors import LaunchRefused
from cdk_blackwell.planning.cost import STOP_GRACE_SECONDS, UPLOAD_SECONDS

ENDED_BEFORE_SECONDS: Final = 1800
"""SageMaker ends running instances so long before the plan's end."""
STARTING_SECONDS: Final = 900
"""Allowance for starting instances and pulling the image, which MaxRuntimeInSeconds does not count.
This project's assumption."""
_NOT_RUN_TIME: Final = ENDED_BEFORE_SECONDS + STARTING_SECONDS + STOP_GRACE_SECONDS + UPLOAD_SECONDS
"""Seconds of a block in which an attempt cannot train."""


def plan_arn(definition: JobDefinition) -> str | None:
    """The plan a job runs under; None without one."""
    arn = definition.request["ResourceConfig"].get("TrainingPlanArn")
    return None if arn is None else str(arn)


def seconds_left(plan: Mapping[str, Any], now: float, *, least: int) -> int:
    """Run time an attempt may have that begins now, or when the plan's time begins.

    A plan may consist of two blocks of capacity; an attempt lives in one of them: in the first that
    still has ``least`` seconds of run time, or else in the first that has not ended. 0 or less when
    there is not even time to start and stop. LaunchRefused when the plan is over or failed.

    :param plan: DescribeTrainingPlan's answer.
    :param now: seconds since the epoch.
    """
    name, status = plan.get("TrainingPlanName"), plan.get("Status")
    if status in ("Expired", "Failed"):
        why = plan.get("StatusMessage") or f"its status is {status}"
        raise LaunchRefused(
            f"the training plan {name} can not be used: {why}. Extend it or buy another."
        )
    # Its own times stand for a plan that names no blocks.
    blocks = [
        (block["StartTime"].timestamp(), block["EndTime"].timestamp())
        for block in plan.get("ReservedCapacitySummaries") or [plan]
        if block.get("StartTime") and block.get("EndTime")
    ]
    left = [
        int(end - max(now, start)) - _NOT_RUN_TIME
        for start, end in sorted(blocks)
        if end - ENDED_BEFORE_SECONDS > now
    ]
    if not left:
        raise LaunchRefused(
            f"the training plan {name} has no time left (SageMaker ends what runs 30 minutes "
            f"before the plan's end, {utc(max((end for _, end in blocks), default=now))}). "
            "Extend it or buy another."
        )
    return next((seconds for seconds in left if seconds >= least), left[0])

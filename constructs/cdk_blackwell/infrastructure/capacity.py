"""Where the instances come from, and how long a job may wait for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

from aws_cdk import Duration, Token

PENDING_SECONDS_MINIMUM: Final = 1_800
PENDING_SECONDS_MAXIMUM: Final = 2_419_200
PLAN_INSTANCE_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)
_PLAN_ARN = re.compile(
    r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):\d{12}:training-plan/[a-zA-Z0-9-]{1,64}"
)


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How a job gets its instances; make one with ``on_demand`` or ``training_plan``."""

    training_plan_arn: str | None
    max_pending_seconds: int
    """How long a job may wait for instances before SageMaker gives up, seconds."""

    def __post_init__(self) -> None:
        if not PENDING_SECONDS_MINIMUM <= self.max_pending_seconds <= PENDING_SECONDS_MAXIMUM:
            raise ValueError(
                f"max_pending of {self.max_pending_seconds} s is not allowed: SageMaker takes "
                f"{PENDING_SECONDS_MINIMUM} s (30 minutes) to {PENDING_SECONDS_MAXIMUM} s (28 days)"
            )

    @classmethod
    def on_demand(cls, *, max_pending: Duration | None = None) -> Capacity:
        """Instances by the hour.

        :param max_pending: how long to wait for free instances. Default: 12 hours.
        """
        return cls(training_plan_arn=None, max_pending_seconds=_seconds(max_pending))

    @classmethod
    def training_plan(
        cls, training_plan_arn: str, *, max_pending: Duration | None = None
    ) -> Capacity:
        """Instances reserved by a SageMaker training plan with target ``training-job``.

        :param training_plan_arn: the plan. EC2 Capacity Blocks cannot be used with SageMaker.
        :param max_pending: how long to wait. Time before the plan begins does not all count.
            Default: 12 hours.
        """
        if not Token.is_unresolved(training_plan_arn) and not _PLAN_ARN.fullmatch(
            training_plan_arn
        ):
            raise ValueError(
                f"training plan {training_plan_arn!r} is not one: give its ARN, "
                "arn:<partition>:sagemaker:<region>:<account>:training-plan/<name>"
            )
        return cls(training_plan_arn=training_plan_arn, max_pending_seconds=_seconds(max_pending))

    def check(self, *, instance_count: int, region: str) -> None:
        """Refuse combinations SageMaker refuses; ValueError says what is allowed."""
        if instance_count < 1:
            raise ValueError(f"instance_count {instance_count} is not allowed: give 1 or more")
        if self.training_plan_arn is None:
            return
        if instance_count not in PLAN_INSTANCE_COUNTS:
            allowed = ", ".join(map(str, PLAN_INSTANCE_COUNTS))
            raise ValueError(
                f"instance_count {instance_count} is not allowed under a training plan: "
                f"give one of {allowed}"
            )
        match = _PLAN_ARN.fullmatch(self.training_plan_arn)
        if match and not Token.is_unresolved(region) and match["region"] != region:
            raise ValueError(
                f"the training plan is in {match['region']}, the stack in {region}: "
                "deploy the stack to the plan's region"
            )

    def resource_config(self) -> dict[str, Any]:
        """This choice's part of the request's ResourceConfig."""
        return {} if self.training_plan_arn is None else {"TrainingPlanArn": self.training_plan_arn}


def _seconds(duration: Duration | None) -> int:
    return int((duration or Duration.hours(12)).to_seconds())

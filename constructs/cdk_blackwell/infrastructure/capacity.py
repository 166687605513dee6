"""Where the instances come from, and how long a job may wait for them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from aws_cdk import Duration, Token

from cdk_blackwell.infrastructure.kinds import check_kinds, whole_seconds

CapacityKind = Literal["on_demand", "training_plan", "spot"]

PENDING_SECONDS_MINIMUM: Final = 1_800
PENDING_SECONDS_MAXIMUM: Final = 2_419_200
KEEP_ALIVE_SECONDS_MAXIMUM: Final = 21_600
"""Of the API; accounts begin with a quota of 3,600 s."""
SPOT_WAIT_SECONDS_MAXIMUM: Final = 28 * 86_400
PLAN_INSTANCE_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)
QUOTA_INSTANCES_PER_JOB: Final = 20
"""Instances per training job that accounts begin with; more need a raised quota."""
MAXIMUM_INSTANCES: Final = 64
"""Largest count a training plan takes, and the most this library plans for."""

_DEFAULT_PENDING: Final = 12 * 3_600
_PLAN_ARN = re.compile(
    r"arn:aws[a-z-]*:sagemaker:(?P<region>[a-z0-9-]+):\d{12}:training-plan/[a-zA-Z0-9-]{1,64}"
)


@dataclass(frozen=True, kw_only=True)
class Capacity:
    """How a job gets its instances; made by ``on_demand``, ``training_plan`` or ``spot``."""

    kind: CapacityKind
    max_pending_seconds: int | None = None
    """How long a job may wait for instances before SageMaker gives up; None for spot."""
    training_plan_arn: str | None = None
    """ARN of the plan; None for the other kinds."""
    plan_fee_usd: float | None = None
    """What the whole training plan costs, USD; paid whether jobs run or not."""
    plan_availability_zone: str | None = None
    """The plan's zone, to compare with the subnet's; None where it is not known."""
    max_wait_seconds: int | None = None
    """Spot only: run time and waiting together, seconds."""
    keep_alive_seconds: int = 0
    """On demand only: how long instances stay, billed, for the next job (a warm pool)."""

    def __post_init__(self) -> None:
        may_be_tokens = ("training_plan_arn", "plan_availability_zone")
        check_kinds(Capacity.__init__, vars(self), tokens=may_be_tokens)
        self._check_kind()
        pending = self.max_pending_seconds
        if pending is not None and not (
            PENDING_SECONDS_MINIMUM <= pending <= PENDING_SECONDS_MAXIMUM
        ):
            raise ValueError(
                f"max_pending of {pending} s is not allowed: SageMaker takes "
                f"{PENDING_SECONDS_MINIMUM} s (30 minutes) to {PENDING_SECONDS_MAXIMUM} s (28 days)"
            )
        if not 0 <= self.keep_alive_seconds <= KEEP_ALIVE_SECONDS_MAXIMUM:
            raise ValueError(
                f"keep_alive of {self.keep_alive_seconds} s is not allowed: SageMaker takes up to "
                f"{KEEP_ALIVE_SECONDS_MAXIMUM} s (6 hours; accounts begin with a quota of 1 hour)"
            )
        if self.plan_fee_usd is not None and not 0 < self.plan_fee_usd < float("inf"):
            raise ValueError(
                f"fee_usd {self.plan_fee_usd} is not allowed: give what the whole training plan "
                "costs, more than 0, or leave it out"
            )

    def _check_kind(self) -> None:
        """What belongs to one kind is refused with another, and what it needs must be there."""
        for name, kind in (
            ("training_plan_arn", "training_plan"),
            ("plan_fee_usd", "training_plan"),
            ("plan_availability_zone", "training_plan"),
            ("max_wait_seconds", "spot"),
            ("keep_alive_seconds", "on_demand"),
        ):
            value = getattr(self, name)
            if value not in (None, 0) and self.kind != kind:
                raise ValueError(
                    f"{name} {value} cannot be combined with capacity {self.kind}: it belongs to "
                    f"{kind}; use Capacity.{kind}(...)"
                )
        needed = {
            "on_demand": "max_pending_seconds",
            "training_plan": "training_plan_arn",
            "spot": "max_wait_seconds",
        }[self.kind]
        if getattr(self, needed) is None:
            raise ValueError(f"capacity {self.kind} needs {needed}: use Capacity.{self.kind}(...)")

    @classmethod
    def on_demand(
        cls, *, max_pending: Duration | None = None, keep_alive: Duration | None = None
    ) -> Capacity:
        """Instances by the hour.

        :param max_pending: how long to wait for free instances, 30 minutes to 28 days.
            Default: 12 hours.
        :param keep_alive: how long instances stay after a job for the next one (a warm pool),
            billed as if it ran. Default: not at all.
        """
        return cls(
            kind="on_demand",
            max_pending_seconds=whole_seconds("max_pending", max_pending, _DEFAULT_PENDING),
            keep_alive_seconds=whole_seconds("keep_alive", keep_alive, 0),
        )

    @classmethod
    def training_plan(
        cls,
        training_plan_arn: str,
        *,
        max_pending: Duration | None = None,
        fee_usd: float | None = None,
        availability_zone: str | None = None,
    ) -> Capacity:
        """Instances reserved by a SageMaker training plan with target ``training-job``.

        :param training_plan_arn: the plan. EC2 Capacity Blocks cannot be used with SageMaker.
        :param max_pending: how long to wait. Time before the plan begins does not all count.
            Default: 12 hours.
        :param fee_usd: what the whole plan costs; shown, and held against ``max_cost_usd``.
            Default: unknown, then no ceiling can be checked.
        :param availability_zone: the plan's zone; the job's subnet must be of it. Default: not
            checked, since only AWS knows. A plan of two blocks may lie in two zones.
        """
        check_kinds(
            Capacity.training_plan, locals(), tokens=("training_plan_arn", "availability_zone")
        )
        if not Token.is_unresolved(training_plan_arn) and not _PLAN_ARN.fullmatch(
            training_plan_arn
        ):
            raise ValueError(
                f"training plan {training_plan_arn!r} is not one: give its ARN, "
                "arn:<partition>:sagemaker:<region>:<account>:training-plan/<name>"
            )
        return cls(
            kind="training_plan",
            training_plan_arn=training_plan_arn,
            max_pending_seconds=whole_seconds("max_pending", max_pending, _DEFAULT_PENDING),
            plan_fee_usd=fee_usd,
            plan_availability_zone=availability_zone,
        )

    @classmethod
    def spot(cls, *, max_wait: Duration) -> Capacity:
        """Managed spot: spare instances, taken back at any time; there is no fall-back to others.

        SageMaker syncs checkpoints to S3 for it, so it is for jobs on one instance, which use
        CheckpointConfig. Warm pools do not combine with it.

        :param max_wait: run time and all waiting together; at least ``max_runtime``.
        """
        return cls(kind="spot", max_wait_seconds=whole_seconds("max_wait", max_wait, 0))

    def check(
        self,
        *,
        instance_count: int,
        region: str,
        max_runtime_seconds: int | None = None,
        checkpoints_in_s3: bool = True,
    ) -> None:
        """Refuse combinations SageMaker refuses; ValueError says what is allowed.

        :param instance_count: instances of one attempt.
        :param region: the stack's, to compare with the plan's; may be a token.
        :param max_runtime_seconds: longest time of one attempt. Default: not compared.
        :param checkpoints_in_s3: the job uses SageMaker's CheckpointConfig. Default: yes.
        """
        if instance_count < 1:
            raise ValueError(f"instance_count {instance_count} is not allowed: give 1 or more")
        if self.kind == "training_plan":
            self._check_plan(instance_count, region)
        elif instance_count > MAXIMUM_INSTANCES:
            raise ValueError(
                f"instance_count {instance_count} is not allowed: give 1 to {MAXIMUM_INSTANCES}"
            )
        if self.kind == "spot":
            self._check_spot(max_runtime_seconds, checkpoints_in_s3)

    def _check_plan(self, instance_count: int, region: str) -> None:
        if instance_count not in PLAN_INSTANCE_COUNTS:
            allowed = ", ".join(map(str, PLAN_INSTANCE_COUNTS))
            raise ValueError(
                f"instance_count {instance_count} is not allowed under a training plan: "
                f"give one of {allowed}"
            )
        match = _PLAN_ARN.fullmatch(self.training_plan_arn or "")
        if match and not Token.is_unresolved(region) and match["region"] != region:
            raise ValueError(
                f"the training plan is in {match['region']}, the stack in {region}: "
                "deploy the stack to the plan's region"
            )

    def _check_spot(self, max_runtime_seconds: int | None, checkpoints_in_s3: bool) -> None:
        assert self.max_wait_seconds is not None
        lowest = max_runtime_seconds or 1
        if not lowest <= self.max_wait_seconds <= SPOT_WAIT_SECONDS_MAXIMUM:
            raise ValueError(
                f"max_wait of {self.max_wait_seconds} s is not allowed for managed spot: it counts "
                f"run time and waiting, so give {lowest} s (max_runtime) to "
                f"{SPOT_WAIT_SECONDS_MAXIMUM} s (28 days)"
            )
        if not checkpoints_in_s3:
            raise ValueError(
                "managed spot needs SageMaker's own sync of checkpoints, and a job on several "
                "instances writes them to FSx for Lustre instead: use Capacity.on_demand() or "
                "Capacity.training_plan(...), or one instance"
            )

    def warnings(self, *, instance_count: int) -> list[str]:
        """What AWS may refuse of ``instance_count`` instances though it is a valid request."""
        if self.kind == "training_plan" or instance_count <= QUOTA_INSTANCES_PER_JOB:
            return []
        return [
            f"{instance_count} instances are more than the {QUOTA_INSTANCES_PER_JOB} per training "
            "job that accounts begin with: raise that quota in Service Quotas before the launch"
        ]

    def resource_config(self) -> dict[str, Any]:
        """This choice's part of the request's ResourceConfig."""
        config: dict[str, Any] = {}
        if self.training_plan_arn is not None:
            config["TrainingPlanArn"] = self.training_plan_arn
        if self.keep_alive_seconds:
            config["KeepAlivePeriodInSeconds"] = self.keep_alive_seconds
        return config

    def stopping_condition(self) -> dict[str, int]:
        """This choice's part of the request's StoppingCondition."""
        if self.max_wait_seconds is not None:
            return {"MaxWaitTimeInSeconds": self.max_wait_seconds}
        assert self.max_pending_seconds is not None
        return {"MaxPendingTimeInSeconds": self.max_pending_seconds}

    def request_members(self) -> dict[str, Any]:
        """This choice's members of the request itself."""
        return {"EnableManagedSpotTraining": True} if self.kind == "spot" else {}

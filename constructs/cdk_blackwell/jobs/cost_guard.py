"""What a launch costs per hour and at most, refused where it passes the user's ceiling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.planning.cost import STOP_GRACE_SECONDS, UPLOAD_SECONDS, worst_case_usd
from cdk_blackwell.planning.errors import DoesNotFitError

DEFAULT_RUNTIME_SECONDS: Final = 86_400
MAX_RUNTIME_SECONDS: Final = 28 * 86_400
MAX_ATTEMPTS: Final = 999


@dataclass(frozen=True, kw_only=True)
class CostGuard:
    """Time, attempts and money of one job. ValueError names what is out of range or missing.

    Everything that SageMaker may bill counts: run time, the grace after a stop, the upload, and the
    time a warm pool stays.
    """

    capacity: Capacity
    instance_count: int
    max_runtime_seconds: int | None
    """Longest time of one attempt; None where the user gave none."""
    max_attempts: int
    hourly_price_usd: float | None
    """Of one instance."""
    max_cost_usd: float | None
    waived: bool
    """The user wants no ceiling."""

    def __post_init__(self) -> None:
        if not 60 <= self.runtime_seconds <= MAX_RUNTIME_SECONDS:
            raise ValueError(
                f"max_runtime of {self.runtime_seconds} s is not allowed: give 60 s to "
                f"{MAX_RUNTIME_SECONDS} s (28 days; accounts begin with a quota of 5 days)"
            )
        if not 1 <= self.max_attempts <= MAX_ATTEMPTS:
            raise ValueError(
                f"max_attempts {self.max_attempts} is not allowed: give 1 to {MAX_ATTEMPTS}"
            )
        for name in ("hourly_price_usd", "max_cost_usd"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(
                    f"{name} {value} is not allowed: give more than 0, or leave it out"
                )
        self._check_given()
        self._check_ceiling()

    @property
    def runtime_seconds(self) -> int:
        """Longest time of one attempt. Default: 1 day."""
        return (
            DEFAULT_RUNTIME_SECONDS
            if self.max_runtime_seconds is None
            else self.max_runtime_seconds
        )

    @property
    def marginal_price_usd(self) -> float | None:
        """What one more hour of one instance costs: nothing where a training plan is paid for it.

        This is what the controller counts as spend; None where no price was given.
        """
        return 0.0 if self.capacity.kind == "training_plan" else self.hourly_price_usd

    @property
    def usd_per_hour(self) -> float | None:
        """What all instances cost per hour on top of what is paid anyway."""
        price = self.marginal_price_usd
        return None if price is None else price * self.instance_count

    @property
    def worst_usd_per_attempt(self) -> float | None:
        """The most one attempt can cost on top of what is paid anyway."""
        price = self.marginal_price_usd
        if price is None:
            return None
        return worst_case_usd(
            max_runtime_seconds=self.runtime_seconds,
            instance_count=self.instance_count,
            hourly_price_usd=price,
            keep_alive_seconds=self.capacity.keep_alive_seconds,
        )

    def text(self) -> str:
        """For the output of ``cdk synth``: what a launch costs per hour and at most."""
        if self.capacity.kind == "training_plan":
            fee = self.capacity.plan_fee_usd
            known = "an unknown fee (fee_usd is not given)" if fee is None else f"{fee:,.2f} USD"
            return (
                f"a launch adds no cost: its training plan is paid with {known}, whether jobs run "
                "or not"
            )
        attempt, hour = self.worst_usd_per_attempt, self.usd_per_hour
        if attempt is None or hour is None:
            return (
                "what a launch costs is unknown: hourly_price_usd is not given; it holds "
                f"{self.instance_count} instance(s) for up to {self.max_attempts} attempts of "
                f"{self.runtime_seconds / 3600:,.1f} hours"
            )
        keep_alive = (
            f" and {self.capacity.keep_alive_seconds / 60:,.0f} minutes of keep-alive"
            if self.capacity.keep_alive_seconds
            else ""
        )
        ceiling = (
            "the ceiling is waived"
            if self.max_cost_usd is None
            else f"max_cost_usd is {self.max_cost_usd:,.2f}"
        )
        return (
            f"a launch costs {hour:,.2f} USD per hour ({self.instance_count} instance(s) at "
            f"{self.hourly_price_usd:,.2f}) and at most {attempt * self.max_attempts:,.2f} USD: "
            f"{self.max_attempts} attempts of up to {self.runtime_seconds / 3600:,.1f} hours, each "
            f"with {STOP_GRACE_SECONDS} s to stop, {UPLOAD_SECONDS / 60:.0f} minutes to upload"
            f"{keep_alive}; {ceiling}"
        )

    def warnings(self) -> list[str]:
        """What the user should know and cannot be refused for."""
        if (
            self.capacity.kind == "training_plan"
            and self.max_cost_usd is not None
            and self.capacity.plan_fee_usd is None
        ):
            return [
                f"max_cost_usd {self.max_cost_usd:,.2f} is not checked: under a training plan the "
                "plan's fee is what is paid; give it to Capacity.training_plan(fee_usd=...)"
            ]
        return []

    def _check_given(self) -> None:
        if self.waived and self.max_cost_usd is not None:
            raise ValueError(
                f"max_cost_usd {self.max_cost_usd:,.2f} and waive_cost_ceiling are both given: "
                "give the ceiling, or waive it"
            )
        if self.waived or self.capacity.kind == "training_plan":
            return
        names = ("max_runtime", "hourly_price_usd", "max_cost_usd")
        values = (self.max_runtime_seconds, self.hourly_price_usd, self.max_cost_usd)
        missing = [name for name, value in zip(names, values, strict=True) if value is None]
        if missing:
            raise ValueError(
                f"{' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} missing: a job on "
                "instances of over 100 USD an hour needs max_runtime, hourly_price_usd (the price "
                "of one instance in your region) and max_cost_usd together. Give them, or set "
                "waive_cost_ceiling to go without a ceiling"
            )

    def _check_ceiling(self) -> None:
        if self.max_cost_usd is None:
            return
        if self.capacity.kind == "training_plan":
            fee = self.capacity.plan_fee_usd
            if fee is not None and fee > self.max_cost_usd:
                raise DoesNotFitError(
                    f"the training plan costs {fee:,.2f} USD, more than max_cost_usd "
                    f"{self.max_cost_usd:,.2f}: use another plan, or raise max_cost_usd"
                )
            return
        attempt = self.worst_usd_per_attempt
        if attempt is None:
            return
        worst = attempt * self.max_attempts
        if worst > self.max_cost_usd:
            raise DoesNotFitError(
                f"the job can cost {worst:,.2f} USD, more than max_cost_usd "
                f"{self.max_cost_usd:,.2f}: {self.max_attempts} attempts of up to "
                f"{self.runtime_seconds / 3600:,.1f} hours on {self.instance_count} instance(s) at "
                f"{self.hourly_price_usd:,.2f} USD per hour. "
                "Lower max_runtime, max_attempts or instance_count, or raise max_cost_usd"
            )

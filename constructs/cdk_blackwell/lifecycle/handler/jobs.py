"""SageMaker training jobs by name: create once, describe, stop.

Every call may have taken effect although it raised, and may be a repetition; so the truth is
always what a describe says, never what an exception seems to say.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeVar

from botocore.exceptions import (
    ClientError,
    ConnectionError,
    HTTPClientError,
    ParamValidationError,
)

from cdk_blackwell.lifecycle.handler.clock import Clock
from cdk_blackwell.lifecycle.handler.errors import (
    ACCESS_REFUSED,
    LaunchDelayed,
    LaunchRefused,
    LaunchUnknown,
    LaunchUnwanted,
    error_code,
    error_message,
    http_status,
)
from cdk_blackwell.planning.contracts import TAG_STACK

PATIENCE_SECONDS: Final = 60.0
"""How long a call is repeated on throttling, missing answers and IAM's eventual consistency."""

TERMINAL: Final = frozenset({"Completed", "Failed", "Stopped", "Deleting"})

_THROTTLED: Final = frozenset(
    {
        "Throttling",
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "RequestLimitExceeded",
        "SlowDown",
    }
)
_ROLE_NOT_YET_SEEN: Final = re.compile(
    r"assume.{0,20}role|role .{0,200}(does not exist|is invalid|trust)", re.IGNORECASE | re.DOTALL
)
_MISSING: Final = re.compile(r"not found|could not find|does not exist", re.IGNORECASE)
_CLOCK_SKEW_SECONDS: Final = 300.0

NO_ANSWER: Final = (ConnectionError, HTTPClientError)
"""The request may have arrived or not."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What SageMaker says about a job, in a describe or an event."""

    job_name: str
    status: str
    secondary: str
    reason: str
    """FailureReason, else the message of the last secondary status."""
    trained: bool = True
    """Whether the training container was ever started; True where SageMaker does not say."""
    training_began: float | None = None
    """Since when instances are held and billed, seconds since the epoch; None before."""
    training_ended: float | None = None
    billed_seconds: float | None = None
    """As SageMaker bills it, per instance; None where it does not say."""
    run_seconds: int | None = None
    """The run time that its request allowed; None where SageMaker does not say."""

    @property
    def terminal(self) -> bool:
        """Whether it will never run again."""
        return self.status in TERMINAL

    @classmethod
    def read(cls, description: Mapping[str, Any]) -> Observation:
        """From DescribeTrainingJob or the ``detail`` of a state-change event (same members)."""
        transitions = description.get("SecondaryStatusTransitions") or []
        reason = description.get("FailureReason")
        if not reason and transitions:
            reason = transitions[-1].get("StatusMessage")
        statuses = [transition.get("Status") for transition in transitions]
        return cls(
            job_name=str(description["TrainingJobName"]),
            status=str(description.get("TrainingJobStatus", "")),
            secondary=str(description.get("SecondaryStatus", "")),
            reason=str(reason or ""),
            trained="Training" in statuses or not statuses,
            training_began=_seconds(description.get("TrainingStartTime")),
            training_ended=_seconds(description.get("TrainingEndTime")),
            billed_seconds=_billed(description),
            run_seconds=description.get("StoppingCondition", {}).get("MaxRuntimeInSeconds"),
        )


@dataclass(frozen=True, kw_only=True)
class Jobs:
    """The calls, with patience."""

    sagemaker: Any
    clock: Clock

    def unknown_field(self, request: Mapping[str, Any]) -> str | None:
        """First member of a CreateTrainingJob request that the loaded service model lacks."""
        model = self.sagemaker.meta.service_model.operation_model("CreateTrainingJob")
        return _unknown_member(model.input_shape, request, "")

    def describe(self, job_name: str) -> Observation | None:
        """The job as it is now, None when there is none."""
        description = self._describe(job_name)
        return None if description is None else Observation.read(description)

    def stop(self, job_name: str) -> Observation | None:
        """Ask the job to stop unless it has ended; say what it is then, None when there is none."""
        seen = self.describe(job_name)
        if seen is None or seen.terminal or seen.status == "Stopping":
            return seen
        try:
            self._patiently(lambda: self.sagemaker.stop_training_job(TrainingJobName=job_name))
        except ClientError as error:
            # It may have ended in between, which SageMaker answers with a validation error.
            if error_code(error) not in {"ValidationException", "ResourceNotFound"}:
                raise
            after = self.describe(job_name)
            if after is not None and not after.terminal and after.status != "Stopping":
                raise
            return after
        return self.describe(job_name)

    def training_plan(self, arn: str) -> Mapping[str, Any]:
        """DescribeTrainingPlan; LaunchRefused when there is no such plan."""
        name = arn.rsplit("/", 1)[-1]
        try:
            answer: Mapping[str, Any] = self._patiently(
                lambda: self.sagemaker.describe_training_plan(TrainingPlanName=name)
            )
        except ClientError as error:
            if error_code(error) in {"ResourceNotFound", "ResourceNotFoundException"}:
                raise LaunchRefused(f"there is no training plan {arn}: {_words(error)}") from error
            raise
        return answer

    def create(
        self,
        request: dict[str, Any],
        *,
        stack_id: str,
        claimed_at: float,
        patient_quota: bool,
        permitted: Callable[[], None],
    ) -> None:
        """Create the job or find that an earlier call of ours already did.

        ``patient_quota``: also wait for the quota, which a job that just ended may still hold.
        ``permitted``: asked right before every call; raises LaunchUnwanted where none may be made.
        LaunchRefused when SageMaker says no, or the name is taken by a job that is not ours;
        LaunchDelayed when it still says no after a while, but not for good; LaunchUnknown when one
        of the calls may have taken effect, or still may.
        """
        name = request["TrainingJobName"]
        deadline = self.clock.now() + PATIENCE_SECONDS
        delay = 1.0
        open_call: Exception | None = None
        """Of a call that may yet take effect."""
        while True:
            try:
                permitted()
            except LaunchUnwanted as unwanted:
                if open_call is None:
                    raise
                raise LaunchUnknown(f"{unwanted}; {_words(open_call)}") from open_call
            failure = self._create_once(request)
            if failure is None:
                return
            if _unclear(failure):
                open_call = failure
            passes = _unclear(failure) or _passes(failure, patient_quota=patient_quota)
            late = self.clock.now() + delay > deadline
            # The client repeats a call by itself, so that any refusal, also one that says that the
            # quota is used up, may be the answer to the second of two calls, the first of which
            # took effect. So nothing is concluded from a refusal alone.
            if (late or open_call is failure or not passes) and self._exists(name, failure):
                self._require_ours(name, stack_id, claimed_at)
                return
            if not passes and open_call is None:
                text = f"SageMaker refused {name}: {_words(failure)}"
                raise LaunchRefused(text) from failure
            if not passes or late:
                words = _words(failure).rstrip(".")
                text = f"{name}: no success in {PATIENCE_SECONDS:.0f} s, last: {words}."
                raise (LaunchDelayed if open_call is None else LaunchUnknown)(text) from failure
            self.clock.sleep(delay)
            delay = min(2 * delay, 15.0)

    def _create_once(self, request: dict[str, Any]) -> Exception | None:
        """One call; what it was answered with where that is not success."""
        try:
            self.sagemaker.create_training_job(**request)
        except ParamValidationError as error:
            name = request["TrainingJobName"]
            raise LaunchRefused(f"the request for {name} is not valid: {error}") from error
        except (ClientError, *NO_ANSWER) as error:
            return error
        return None

    def _exists(self, name: str, failure: Exception) -> bool:
        """Whether there is a job of this name after a call that failed."""
        try:
            found = self._describe(name) is not None
        except ClientError as error:
            if not (_refuses_access(error) and _refuses_access(failure)):
                raise
            return False  # Whoever may do nothing has done nothing.
        if not found and _code(failure) == "ResourceInUse":
            raise LaunchUnknown(f"{name} exists by one answer and does not by another")
        return found

    def _require_ours(self, name: str, stack_id: str, claimed_at: float) -> None:
        description = self._describe(name)
        if description is None:
            raise LaunchUnknown(f"{name} exists by one answer and does not by another")
        arn = description["TrainingJobArn"]
        pages = self.sagemaker.get_paginator("list_tags")
        tags = self._patiently(
            lambda: [tag for page in pages.paginate(ResourceArn=arn) for tag in page["Tags"]]
        )
        owners = {tag["Value"] for tag in tags if tag["Key"] == TAG_STACK}
        created = description.get("CreationTime")
        older = created is not None and created.timestamp() < claimed_at - _CLOCK_SKEW_SECONDS
        if owners != {stack_id} or older:
            whose = "an earlier launch" if owners == {stack_id} else "something else"
            raise LaunchRefused(
                f"run_id already used: the training job {name} exists and belongs to {whose}. "
                "Choose another run_id."
            )

    def _describe(self, job_name: str) -> Mapping[str, Any] | None:
        try:
            answer: Mapping[str, Any] = self._patiently(
                lambda: self.sagemaker.describe_training_job(TrainingJobName=job_name)
            )
        except ClientError as error:
            code = error_code(error)
            if code in {"ResourceNotFound", "ResourceNotFoundException"} or (
                code == "ValidationException" and _MISSING.search(error_message(error))
            ):
                return None
            raise
        return answer

    def _patiently(self, call: Callable[[], T]) -> T:
        deadline = self.clock.now() + PATIENCE_SECONDS
        delay = 1.0
        while True:
            try:
                return call()
            except (ClientError, *NO_ANSWER) as error:
                if not passing(error) or self.clock.now() + delay > deadline:
                    raise
            self.clock.sleep(delay)
            delay = min(2 * delay, 15.0)


def passing(error: Exception) -> bool:
    """Whether AWS did not do what it was asked for a reason that goes away by itself."""
    return _unclear(error) or _code(error) in _THROTTLED


def _unclear(error: Exception) -> bool:
    """Whether the call may have taken effect all the same."""
    return isinstance(error, NO_ANSWER) or (
        isinstance(error, ClientError) and http_status(error) >= 500
    )


def _passes(error: Exception, *, patient_quota: bool) -> bool:
    """Whether the refusal of a launch is of the kind that goes away by itself."""
    code = _code(error)
    if code == "ResourceLimitExceeded":
        return patient_quota
    if code == "ValidationException":
        return _ROLE_NOT_YET_SEEN.search(error_message(error)) is not None
    return code in _THROTTLED or _refuses_access(error)


def _refuses_access(error: Exception) -> bool:
    return _code(error) in ACCESS_REFUSED


def _code(error: Exception) -> str:
    return error_code(error) if isinstance(error, ClientError) else ""


def _words(error: Exception) -> str:
    if isinstance(error, ClientError):
        text = f"{error_code(error)}: {error_message(error)}"
        if error_code(error) == "ResourceLimitExceeded":
            text = text.rstrip(".")
            return f"{text}. Ask for a higher quota in Service Quotas, or stop what holds it."
        return text
    return f"{type(error).__name__}: {error}"


def _billed(description: Mapping[str, Any]) -> float | None:
    """``BillableTimeInSeconds``, else from the times; nothing for a job that never trained."""
    told = description.get("BillableTimeInSeconds")
    if told is not None:
        return float(told)
    began, ended = (
        _seconds(description.get(key)) for key in ("TrainingStartTime", "TrainingEndTime")
    )
    return None if began is None or ended is None else max(0.0, ended - began)


def _seconds(value: Any) -> float | None:
    """A describe gives a datetime, an event milliseconds."""
    if isinstance(value, datetime):
        return value.timestamp()
    return None if value is None else float(value) / 1000


def _unknown_member(shape: Any, value: Any, where: str) -> str | None:
    if shape.type_name == "structure" and isinstance(value, Mapping):
        for key, item in value.items():
            path = f"{where}.{key}" if where else key
            if key not in shape.members:
                return path
            found = _unknown_member(shape.members[key], item, path)
            if found:
                return found
    if shape.type_name == "list" and isinstance(value, list):
        for index, item in enumerate(value):
            found = _unknown_member(shape.member, item, f"{where}[{index}]")
            if found:
                return found
    return None

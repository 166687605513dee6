"""The state of one training job, as DescribeTrainingJob and the state-change events tell it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import botocore.session

IN_PROGRESS: Final = "InProgress"
STOPPING: Final = "Stopping"
STOPPED: Final = "Stopped"
COMPLETED: Final = "Completed"
FAILED: Final = "Failed"
TERMINAL: Final = frozenset({COMPLETED, FAILED, STOPPED})

STARTING: Final = "Starting"
DOWNLOADING: Final = "Downloading"
TRAINING: Final = "Training"
UPLOADING: Final = "Uploading"
MAX_RUNTIME_EXCEEDED: Final = "MaxRuntimeExceeded"

_MESSAGES: Final = {
    STARTING: "Preparing the instances for training",
    DOWNLOADING: "Downloading input data",
    TRAINING: "Training image download completed. Training in progress.",
    UPLOADING: "Uploading generated training model",
    STOPPING: "Stopping the training job",
    STOPPED: "Training job stopped",
    COMPLETED: "Training job completed",
    FAILED: "Training job failed",
    MAX_RUNTIME_EXCEEDED: "Training job runtime exceeded MaxRuntimeInSeconds",
}

_DEFAULTS: Final = {
    "EnableNetworkIsolation": False,
    "EnableInterContainerTrafficEncryption": False,
    "EnableManagedSpotTraining": False,
}


def _now() -> float:
    """Seconds since the epoch, in milliseconds' steps as SageMaker tells them."""
    return round(time.time(), 3)


def _described_members() -> frozenset[str]:
    model = botocore.session.Session().get_service_model("sagemaker")
    shape = model.operation_model("DescribeTrainingJob").output_shape
    assert shape is not None
    return frozenset(shape.members)


DESCRIBED_MEMBERS: Final = _described_members()


@dataclass(kw_only=True)
class Transition:
    """One secondary status; times in seconds since the epoch."""

    status: str
    start: float
    end: float | None = None
    message: str

    def to_dict(self) -> dict[str, Any]:
        """The member of SecondaryStatusTransitions."""
        end = {} if self.end is None else {"EndTime": self.end}
        return {
            "Status": self.status,
            "StartTime": self.start,
            **end,
            "StatusMessage": self.message,
        }


@dataclass(kw_only=True)
class JobRecord:
    """One training job; every method may be called from any thread.

    ``on_change`` receives the description after each change of state, in order, and is called
    with the record locked: it must only hand the description on.
    """

    name: str
    account: str
    region: str
    request: Mapping[str, Any]
    on_change: Callable[[dict[str, Any]], None]
    tags: list[dict[str, str]] = field(default_factory=list)
    creation_time: float = field(default_factory=_now)
    last_modified_time: float = 0.0
    training_start_time: float | None = None
    training_end_time: float | None = None
    status: str = IN_PROGRESS
    failure_reason: str | None = None
    metrics: list[dict[str, Any]] = field(default_factory=list)
    """FinalMetricDataList: the last value of each metric definition."""
    transitions: list[Transition] = field(default_factory=list)
    _stopped_as: str = STOPPED
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def arn(self) -> str:
        """ARN of the job."""
        return f"arn:aws:sagemaker:{self.region}:{self.account}:training-job/{self.name}"

    @property
    def response_object(self) -> dict[str, Any]:
        """What moto's Search reads."""
        return self.describe()

    @property
    def secondary_status(self) -> str:
        """The newest secondary status."""
        return self.transitions[-1].status if self.transitions else STARTING

    @property
    def is_terminal(self) -> bool:
        """Nothing more will change."""
        return self.status in TERMINAL

    @property
    def is_stopping(self) -> bool:
        """Somebody asked for the end, or the time is over."""
        return self.status == STOPPING

    def begin(self) -> None:
        """Enter Starting, the first state."""
        with self._lock:
            self._enter(IN_PROGRESS, STARTING)

    def progress(self, secondary_status: str) -> bool:
        """Enter a phase of a running job; False (and nothing done) when it is to stop."""
        with self._lock:
            if self.status != IN_PROGRESS:
                return False
            self._enter(IN_PROGRESS, secondary_status)
            return True

    def stop(self, *, final_secondary_status: str = STOPPED) -> bool:
        """Ask for the end; False when the job is over or already stopping."""
        with self._lock:
            if self.status != IN_PROGRESS:
                return False
            self._stopped_as = final_secondary_status
            self._enter(STOPPING, STOPPING)
            return True

    def complete(self) -> None:
        """The container ended well and everything is uploaded, or a stop has been carried out."""
        with self._lock:
            if self.status == STOPPING:
                self._enter(STOPPED, self._stopped_as)
            else:
                self._enter(COMPLETED, COMPLETED)

    def fail(self, reason: str) -> None:
        """The job failed."""
        with self._lock:
            self.failure_reason = reason
            self._enter(FAILED, FAILED, message=reason)

    def merge_tags(self, tags: list[dict[str, str]]) -> None:
        """Add tags; a key that is there gets the new value."""
        with self._lock:
            merged = {tag["Key"]: tag["Value"] for tag in [*self.tags, *tags]}
            self.tags = [{"Key": key, "Value": value} for key, value in merged.items()]

    def describe(self) -> dict[str, Any]:
        """DescribeTrainingJob's answer; times in seconds since the epoch."""
        with self._lock:
            given = {key: self.request[key] for key in self.request if key in DESCRIBED_MEMBERS}
            state = {
                "TrainingJobName": self.name,
                "TrainingJobArn": self.arn,
                "TrainingJobStatus": self.status,
                "SecondaryStatus": self.secondary_status,
                "FailureReason": self.failure_reason,
                "ModelArtifacts": {"S3ModelArtifacts": self.model_uri},
                "CreationTime": self.creation_time,
                "TrainingStartTime": self.training_start_time,
                "TrainingEndTime": self.training_end_time,
                "LastModifiedTime": self.last_modified_time,
                "SecondaryStatusTransitions": [step.to_dict() for step in self.transitions],
                "FinalMetricDataList": list(self.metrics) or None,
                **self._durations(),
            }
            known = {key: value for key, value in state.items() if value is not None}
            return {**_DEFAULTS, **given, **known}

    @property
    def output_uri(self) -> str:
        """``<S3OutputPath>/<job>/output``, where artefacts go."""
        base = str(self.request["OutputDataConfig"]["S3OutputPath"]).rstrip("/")
        return f"{base}/{self.name}/output"

    @property
    def is_compressed(self) -> bool:
        """Artefacts are uploaded as tar.gz archives (SageMaker's default)."""
        return bool(self.request["OutputDataConfig"].get("CompressionType", "GZIP") == "GZIP")

    @property
    def model_uri(self) -> str:
        """ModelArtifacts: an archive, or a prefix when uncompressed."""
        return f"{self.output_uri}/{'model.tar.gz' if self.is_compressed else 'model/'}"

    def _durations(self) -> dict[str, int]:
        if self.training_start_time is None or self.training_end_time is None:
            return {}
        seconds = math.ceil(self.training_end_time - self.training_start_time)
        return {"TrainingTimeInSeconds": seconds, "BillableTimeInSeconds": seconds}

    def _enter(self, status: str, secondary: str, message: str | None = None) -> None:
        now = _now()
        if self.transitions and self.transitions[-1].end is None:
            self.transitions[-1].end = now
        is_end = status in TERMINAL
        self.transitions.append(
            Transition(
                status=secondary,
                start=now,
                end=now if is_end else None,
                message=message or _MESSAGES[secondary],
            )
        )
        self.status = status
        self.last_modified_time = now
        if secondary == DOWNLOADING:
            self.training_start_time = now
        if is_end:
            self.training_end_time = now
        self.on_change(self.describe())

"""The EventBridge event of a job's change of state, and a thread that publishes them in order."""

from __future__ import annotations

import logging
import queue
import threading
import uuid
from datetime import UTC, datetime
from typing import Any, Final

from cdk_blackwell.local.sagemaker.settings import Emit

SOURCE: Final = "aws.sagemaker"
DETAIL_TYPE: Final = "SageMaker Training Job State Change"

_TIME_MEMBERS: Final = frozenset(
    {
        "CreationTime",
        "TrainingStartTime",
        "TrainingEndTime",
        "LastModifiedTime",
        "StartTime",
        "EndTime",
        "Timestamp",
    }
)

log = logging.getLogger(__name__)


def state_change_event(description: dict[str, Any], *, account: str, region: str) -> dict[str, Any]:
    """The event for one DescribeTrainingJob answer; times in ``detail`` are milliseconds."""
    changed = datetime.fromtimestamp(description["LastModifiedTime"], tz=UTC)
    return {
        "version": "0",
        "id": str(uuid.uuid4()),
        "detail-type": DETAIL_TYPE,
        "source": SOURCE,
        "account": account,
        "time": changed.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "region": region,
        "resources": [description["TrainingJobArn"]],
        "detail": _in_milliseconds(description),
    }


def _in_milliseconds(description: dict[str, Any]) -> dict[str, Any]:
    """Only the members this service adds hold times; what the request said stays as it is."""
    detail: dict[str, Any] = {
        key: round(value * 1000) if key in _TIME_MEMBERS else value
        for key, value in description.items()
    }
    for name in ("SecondaryStatusTransitions", "FinalMetricDataList"):
        if name in detail:
            detail[name] = [_in_milliseconds(member) for member in detail[name]]
    return detail


class Publisher:
    """Publishes one job's events one after another, so that no later state overtakes."""

    def __init__(self, *, name: str, account: str, region: str, emit: Emit) -> None:
        self._account = account
        self._region = region
        self._emit = emit
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"events-{name}", daemon=True)
        self._is_abandoned = False
        self._thread.start()

    def put(self, description: dict[str, Any]) -> None:
        """Hand a state on; returns at once."""
        self._queue.put(description)

    def close(self, *, abandon: bool = False) -> None:
        """End after what is queued, or with ``abandon`` after the event being published."""
        self._is_abandoned = self._is_abandoned or abandon
        self._queue.put(None)

    def join(self, timeout: float) -> None:
        """Wait for the end, at most ``timeout`` seconds."""
        self._thread.join(timeout)

    def _run(self) -> None:
        while (description := self._queue.get()) is not None:
            if self._is_abandoned:
                continue
            event = state_change_event(description, account=self._account, region=self._region)
            try:
                self._emit(self._region, self._account, event)
            except Exception:
                # EventBridge is best effort too; the next state must still be told.
                log.exception("could not publish %s", event["detail"]["TrainingJobName"])

"""A container's output on its way to CloudWatch Logs, and the metrics found in it."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.planning.contracts import NAMESPACE_OF_JOBS

BATCH_EVENTS: Final = 10_000
BATCH_BYTES: Final = 1_000_000
EVENT_BYTES: Final = 250_000
_EVENT_OVERHEAD: Final = 26
"""CloudWatch counts this many bytes beside each message."""


class LogPump:
    """Sends what is appended to ``log.txt`` to one log stream, whole lines at a time."""

    def __init__(self, *, logs: Any, file: Path, stream: str) -> None:
        self._logs = logs
        self._file = file
        self._stream = stream
        self._offset = 0
        self._partial = b""
        self._is_open = False

    def pump(self, *, final: bool = False) -> list[str]:
        """Send the lines written since the last call, and return them.

        With ``final`` the last line goes too, even without its line end.
        """
        with self._file.open("rb") as log:
            log.seek(self._offset)
            data = log.read()
        self._offset += len(data)
        *lines, self._partial = (self._partial + data).split(b"\n")
        if final and self._partial:
            lines, self._partial = [*lines, self._partial], b""
        messages = [text for line in lines for text in _messages(line)]
        for batch in _batches(messages):
            self._send(batch)
        return messages

    def _send(self, messages: list[str]) -> None:
        if not self._is_open:
            self._open()
        now = int(time.time() * 1000)
        self._logs.put_log_events(
            logGroupName=NAMESPACE_OF_JOBS,
            logStreamName=self._stream,
            logEvents=[{"timestamp": now, "message": message} for message in messages],
        )

    def _open(self) -> None:
        for create, arguments in (
            (self._logs.create_log_group, {"logGroupName": NAMESPACE_OF_JOBS}),
            (
                self._logs.create_log_stream,
                {"logGroupName": NAMESPACE_OF_JOBS, "logStreamName": self._stream},
            ),
        ):
            try:
                create(**arguments)
            except self._logs.exceptions.ResourceAlreadyExistsException:
                continue  # other jobs share the group
        self._is_open = True


def _messages(line: bytes) -> list[str]:
    """The line as text, cut where CloudWatch would refuse it; empty lines are not sent."""
    line = line.rstrip(b"\r")
    return [
        line[start : start + EVENT_BYTES].decode(errors="replace")
        for start in range(0, len(line), EVENT_BYTES)
    ]


def _batches(messages: Iterable[str]) -> Iterable[list[str]]:
    batch: list[str] = []
    size = 0
    for message in messages:
        length = len(message.encode()) + _EVENT_OVERHEAD
        if batch and (len(batch) == BATCH_EVENTS or size + length > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += length
    if batch:
        yield batch


class MetricReader:
    """Applies the request's MetricDefinitions to the log and keeps the last value of each."""

    def __init__(self, definitions: Iterable[Mapping[str, str]]) -> None:
        self._patterns = {item["Name"]: re.compile(item["Regex"]) for item in definitions}
        self._last: dict[str, dict[str, Any]] = {}

    def read(self, lines: Iterable[str]) -> None:
        """Look for every metric in every line; a match that is no number is not a metric."""
        for line in lines:
            for name, pattern in self._patterns.items():
                match = pattern.search(line)
                value = _number(match[1]) if match and pattern.groups else None
                if value is not None:
                    self._last[name] = {
                        "MetricName": name,
                        "Value": value,
                        "Timestamp": time.time(),
                    }

    @property
    def final(self) -> list[dict[str, Any]]:
        """FinalMetricDataList, in the order of the definitions."""
        return [self._last[name] for name in self._patterns if name in self._last]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None

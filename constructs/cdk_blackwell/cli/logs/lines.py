"""Log lines of one training job, from CloudWatch Logs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.planning.contracts import NAMESPACE_OF_JOBS

LATE_MILLISECONDS: Final = 60_000
"""Lines of several hosts arrive out of order; following looks back so far. This project's choice.
"""
_HOST: Final = re.compile(r"/(algo-\d+)")
_RANK: Final = re.compile(r"\[(?:rank|default|trainer)(\d+)\]|\"rank\": (\d+)")


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line and where it comes from."""

    id: str
    """CloudWatch's own, unique in the log group."""
    milliseconds: int
    """Since the epoch."""
    host: str
    """``algo-1`` and so on."""
    text: str

    @property
    def rank(self) -> int | None:
        """The rank that the line names (``[rank3]:``, ``[default3]:``, ``"rank": 3``), if any."""
        found = _RANK.search(self.text)
        return int(found[1] or found[2]) if found else None


def read_lines(
    aws: Aws, job_name: str, *, since: int | None = None, pattern: str | None = None
) -> list[Line]:
    """Lines of all hosts in the order of time; none before the first host spoke.

    :param since: milliseconds since the epoch. None: from the beginning.
    :param pattern: a CloudWatch Logs filter pattern. None: every line.
    """
    arguments: dict[str, Any] = {
        "logGroupName": NAMESPACE_OF_JOBS,
        "logStreamNamePrefix": f"{job_name}/",
    }
    arguments |= {} if since is None else {"startTime": since}
    arguments |= {} if pattern is None else {"filterPattern": pattern}
    pages = aws.client("logs").get_paginator("filter_log_events").paginate(**arguments)
    try:
        events = [event for page in pages for event in page["events"]]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ResourceNotFoundException":
            raise
        return []
    lines = [
        Line(
            id=event["eventId"],
            milliseconds=event["timestamp"],
            host=_host(event["logStreamName"]),
            text=event["message"].rstrip("\n"),
        )
        for event in events
        # The embedded AWS gives the other streams too.
        if event["logStreamName"].startswith(f"{job_name}/")
    ]
    return sorted(lines, key=lambda line: line.milliseconds)


class Follower:
    """Gives every line once, however often it is asked and whatever was lost in between."""

    def __init__(self, aws: Aws, job_name: str, *, pattern: str | None = None) -> None:
        self._aws, self._job_name, self._pattern = aws, job_name, pattern
        self._newest: int | None = None
        self._given: dict[str, int] = {}

    def new_lines(self) -> Iterator[Line]:
        """Lines not given before; an exception on the way loses none of them."""
        since = None if self._newest is None else self._newest - LATE_MILLISECONDS
        found = read_lines(self._aws, self._job_name, since=since, pattern=self._pattern)
        for line in found:
            if line.id not in self._given:
                self._given[line.id] = line.milliseconds
                yield line
        if found:
            self._newest = max(found[-1].milliseconds, self._newest or 0)
            oldest = self._newest - LATE_MILLISECONDS
            self._given = {key: at for key, at in self._given.items() if at >= oldest}


def _host(stream: str) -> str:
    found = _HOST.search(stream)
    return found[1] if found else stream.rsplit("/", 1)[-1]

"""Time, as a value: tests run hours of it in milliseconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


@dataclass(frozen=True, kw_only=True)
class Clock:
    """Seconds since the epoch, and how to let some pass."""

    now: Callable[[], float] = time.time
    sleep: Callable[[float], None] = time.sleep


def utc(seconds: float) -> str:
    """A time since the epoch to the minute, for people."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")

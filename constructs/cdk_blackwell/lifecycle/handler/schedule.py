"""Runs begun by the clock: what an EventBridge rule sends to the controller. Pure.

The run's id is made of the rule's own time, so every delivery of one event is the same run.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cdk_blackwell.planning.contracts import RUN_ID_LENGTH, check_run_id

KEY_NAME: Final = "schedule"
KEY_TIME: Final = "time"
KEY_ID: Final = "id"
"""Keys of the input that the rule sends: the schedule's name, and the event's time and id."""

_TIME: Final = "%Y%m%d-%H%M"
NAME_LENGTH: Final = RUN_ID_LENGTH - len("-20270115-0200")
"""What a run's id leaves for the schedule's name."""


def check_name(name: str) -> str:
    """Return ``name`` when run ids can begin with it; else ValueError."""
    if len(name) > NAME_LENGTH:
        raise ValueError(
            f"schedule name {name!r} is too long: give at most {NAME_LENGTH} letters, digits and "
            "single hyphens; date and time follow it in the run's id"
        )
    check_run_id(name)
    return name


def run_id_of(name: str, time: str) -> str:
    """``nightly-20270115-0200`` for the time ``2027-01-15T02:00:00Z``, to the minute, in UTC."""
    return check_run_id(f"{name}-{datetime.fromisoformat(time).strftime(_TIME)}")

"""What the simulation is made of: its numbers, its job, its faults, and what is under way in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from cdk_blackwell.planning.cost import worst_case_usd
from tests.lifecycle.world import definition

Fault = Literal[
    "crash before", "crash after", "error before", "error after", "delay", "between", "stall"
]
Plan = tuple[tuple[int, Fault], ...]
"""Faults of one invocation: at which of its service calls, and what."""

SWEEP: Final = 300.0
PERIODS: Final = 2
ANSWER_WITHIN: Final = 3600.0
FUNCTION_SECONDS: Final = 900.0
RETRIES: Final = 2
DEPTH: Final = 3
"""So many invocations run at once."""
DELAY: Final = 45.0
STALL: Final = FUNCTION_SECONDS - 1.0
"""A function that is held up, but not ended, goes on in its last second."""
MAX_RUNTIME: Final = 7_200
PRICE: Final = 100.0
NO_CAPACITY: Final = "CapacityError"
"""How the reason of a job begins that never got an instance."""
CEILING: Final = 1.2 * worst_case_usd(
    max_runtime_seconds=MAX_RUNTIME, instance_count=1, hourly_price_usd=PRICE
)
_TEMPLATE = definition()
JOB: Final = definition(
    hourly_price_usd=PRICE,
    max_cost_usd=CEILING,
    request={
        **_TEMPLATE.request,
        "StoppingCondition": {
            "MaxRuntimeInSeconds": MAX_RUNTIME,
            "MaxPendingTimeInSeconds": 3_600,
        },
    },
)
BODY: Final = json.dumps(JOB.to_dict())


class Broken(AssertionError):  # noqa: N818 - a promise
    """A promise that did not hold: its name first, so that tests can ask for one of them."""


@dataclass
class Call:
    """One invocation of the function that is due."""

    event: dict[str, Any]
    plan: Plan
    due: float
    identity: str
    tries: int = 0
    retried: bool = True
    """Whether Lambda repeats it: it does so for asynchronous events only."""


@dataclass
class Frame:
    """An invocation under way."""

    plan: dict[int, Fault]
    until: float
    wakes: float = 0.0
    """While another one runs beside it: when it goes on."""
    calls: int = 0
    created: list[str] = field(default_factory=list)
    """Jobs that it created."""


@dataclass
class Sent:
    """An event of CloudFormation."""

    event: dict[str, Any]
    at: float
    answers: list[tuple[float, dict[str, Any]]] = field(default_factory=list)

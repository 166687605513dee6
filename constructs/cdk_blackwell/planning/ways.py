"""Ways out of a contradiction between settings: only those that pass are named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from cdk_blackwell.planning.divisibility import either, nearest
from cdk_blackwell.planning.errors import PlanError, UnusableValueError
from cdk_blackwell.planning.request import Request

LAYOUT_SIZES: Final = (
    "ulysses",
    "context_parallel",
    "replicas",
    "tensor_parallel",
    "shard_gpus",
)
"""Settings that the search finds better than a contradiction, the least missed first."""


def name_ways(
    request: Request, error: UnusableValueError, *, passes: Callable[[Request], bool]
) -> PlanError:
    """The error with the changes that pass, or with what to leave out; its own cause is ``error``.

    At most two settings, of each the four values nearest to the one given.
    """
    by_setting: dict[str, list[Any]] = {}
    for change in error.changes:
        if passes(request.changed(change)):
            ((name, value),) = change.items()
            by_setting.setdefault(name, []).append(value)
    ways = [_use(request, name, values) for name, values in by_setting.items()]
    if ways:
        return PlanError(f"{error.problem}: use {' or '.join(ways[:2])}")
    given = [name for name in LAYOUT_SIZES if getattr(request.layout, name) is not None]
    for name in given:
        if passes(request.changed({name: None})):
            return PlanError(f"{error.problem}: leave out {name}")
    return PlanError(f"{error.problem}: leave out {' and '.join(given)}")


def _use(request: Request, name: str, values: list[Any]) -> str:
    given = request.value(name)
    if not isinstance(given, int):
        return f"{name} {' or '.join(map(str, values))}"
    return f"{name} {either(nearest(values, given))}"

"""The planner's own errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cdk_blackwell.planning.plan import Plan
    from cdk_blackwell.planning.request import Change


class PlanError(ValueError):
    """A wish that cannot be planned: what was given, what is allowed, what to do."""


class UnusableValueError(PlanError):
    """Values that contradict the model, the GPUs or each other.

    ``changes`` are single settings that would end this contradiction, nobody having looked yet
    whether another one follows; ``make_plan`` names those that pass.
    """

    def __init__(
        self, problem: str, *, changes: tuple[dict[str, Any], ...] = (), way_out: str = ""
    ) -> None:
        super().__init__(f"{problem}: {way_out}" if way_out else problem)
        self.problem = problem
        self.changes = changes


class DoesNotFitError(PlanError):
    """A well-formed wish that a rule refuses: memory, the tier's limits or the cost ceiling.

    ``plan`` is the plan for exactly what was asked, so that its numbers can be shown all the same;
    None where the refusal has nothing to do with a plan. ``changes`` are the ways out that the
    message names, nearest first, each already checked to pass.
    """

    def __init__(
        self, message: str, *, plan: Plan | None = None, changes: tuple[Change, ...] = ()
    ) -> None:
        super().__init__(message)
        self.plan = plan
        self.changes = changes

"""The planner's own errors."""

from __future__ import annotations


class PlanError(ValueError):
    """A wish that cannot be planned: what was given, what is allowed, what to do."""


class DoesNotFitError(PlanError):
    """A well-formed wish that a rule refuses: memory, the tier's limits or the cost ceiling."""

"""The planner's own error."""

from __future__ import annotations


class PlanError(ValueError):
    """A wish that cannot be planned: what was given, what is allowed, what to do."""

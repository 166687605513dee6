"""What a launch costs at most, in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def cost_lines(cost: Mapping[str, Any]) -> list[str]:
    """One line on time and money; nothing where the controller gave none."""
    if not cost:
        return []
    hours = cost["max_runtime_seconds"] / 3600
    shape = (
        f"{cost['instance_count']} instance(s), up to {hours:g} h per attempt, "
        f"up to {cost['maximum_attempts']} attempts"
    )
    worst = cost["worst_case_usd"]
    if worst is None:
        return [f"{shape}; no price is given in the stack, so no cost is known."]
    each = cost["worst_case_usd_per_attempt"]
    return [f"{shape}.", f"Worst case: {worst:,.2f} USD ({each:,.2f} USD per attempt)."]

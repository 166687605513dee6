"""Memory, speed, cost and recipes, known before anything starts.

Standard library only: the same code runs at synth, in the run controller's Lambda and in the
training container. Names are loaded on first use, so that importing one part stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cdk_blackwell.planning.cost import worst_case_usd
    from cdk_blackwell.planning.errors import DoesNotFitError, PlanError
    from cdk_blackwell.planning.hardware import P6_B200, peak_flops
    from cdk_blackwell.planning.memory import MemoryEstimate, estimate_memory
    from cdk_blackwell.planning.model_shape import ModelShape, RopeScaling
    from cdk_blackwell.planning.plan import Plan, make_plan
    from cdk_blackwell.planning.recipes import RecipeOverrides
    from cdk_blackwell.planning.run_spec import RunSpec
    from cdk_blackwell.planning.throughput import flops_per_token

_EXPORTS = {
    "MemoryEstimate": "memory",
    "ModelShape": "model_shape",
    "P6_B200": "hardware",
    "Plan": "plan",
    "DoesNotFitError": "errors",
    "PlanError": "errors",
    "RecipeOverrides": "recipes",
    "RopeScaling": "model_shape",
    "RunSpec": "run_spec",
    "estimate_memory": "memory",
    "flops_per_token": "throughput",
    "make_plan": "plan",
    "peak_flops": "hardware",
    "worst_case_usd": "cost",
}

__all__ = [
    "P6_B200",
    "DoesNotFitError",
    "MemoryEstimate",
    "ModelShape",
    "Plan",
    "PlanError",
    "RecipeOverrides",
    "RopeScaling",
    "RunSpec",
    "estimate_memory",
    "flops_per_token",
    "make_plan",
    "peak_flops",
    "worst_case_usd",
]


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f"{__name__}.{_EXPORTS[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

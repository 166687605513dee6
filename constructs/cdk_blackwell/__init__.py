"""AWS CDK constructs for training models of up to 64B parameters on NVIDIA B200.

The public API is what this module exports. Names are loaded on first use, so that
``cdk_blackwell.planning`` (which also runs inside the training container and in Lambda) needs
neither ``aws_cdk`` nor ``torch``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from cdk_blackwell._version import __version__

if __name__ != "cdk_blackwell":
    # The CDK's `constructs` package looks for parts of itself on the whole path, so from the
    # repository's root this package could be loaded a second time, with every class doubled.
    raise ImportError(f"import cdk_blackwell, not {__name__}")

if TYPE_CHECKING:
    from cdk_blackwell.infrastructure.capacity import Capacity
    from cdk_blackwell.infrastructure.checkpoint_store import CheckpointStore, ICheckpointStore
    from cdk_blackwell.infrastructure.file_system import ISharedFileSystem, SharedFileSystem
    from cdk_blackwell.infrastructure.foundation import Foundation, IFoundation
    from cdk_blackwell.infrastructure.monitoring import TrainingMonitoring
    from cdk_blackwell.infrastructure.network import TrainingNetwork
    from cdk_blackwell.infrastructure.training_image import TrainingImage
    from cdk_blackwell.infrastructure.training_role import TrainingRole
    from cdk_blackwell.jobs.small_model_job import SmallModelJob
    from cdk_blackwell.jobs.training_job import TrainingJob
    from cdk_blackwell.lifecycle.run_controller import RunController
    from cdk_blackwell.planning.errors import DoesNotFitError, PlanError
    from cdk_blackwell.planning.model_shape import ModelShape
    from cdk_blackwell.planning.plan import Plan, make_plan
    from cdk_blackwell.planning.recipes import RecipeOverrides
    from cdk_blackwell.planning.run_spec import Optimizer

_EXPORTS = {
    "Capacity": "cdk_blackwell.infrastructure.capacity",
    "CheckpointStore": "cdk_blackwell.infrastructure.checkpoint_store",
    "DoesNotFitError": "cdk_blackwell.planning.errors",
    "Foundation": "cdk_blackwell.infrastructure.foundation",
    "ICheckpointStore": "cdk_blackwell.infrastructure.checkpoint_store",
    "IFoundation": "cdk_blackwell.infrastructure.foundation",
    "ISharedFileSystem": "cdk_blackwell.infrastructure.file_system",
    "ModelShape": "cdk_blackwell.planning.model_shape",
    "Optimizer": "cdk_blackwell.planning.run_spec",
    "Plan": "cdk_blackwell.planning.plan",
    "PlanError": "cdk_blackwell.planning.errors",
    "RecipeOverrides": "cdk_blackwell.planning.recipes",
    "RunController": "cdk_blackwell.lifecycle.run_controller",
    "SharedFileSystem": "cdk_blackwell.infrastructure.file_system",
    "SmallModelJob": "cdk_blackwell.jobs.small_model_job",
    "TrainingImage": "cdk_blackwell.infrastructure.training_image",
    "TrainingJob": "cdk_blackwell.jobs.training_job",
    "TrainingMonitoring": "cdk_blackwell.infrastructure.monitoring",
    "TrainingNetwork": "cdk_blackwell.infrastructure.network",
    "TrainingRole": "cdk_blackwell.infrastructure.training_role",
    "make_plan": "cdk_blackwell.planning.plan",
}

__all__ = [
    "Capacity",
    "CheckpointStore",
    "DoesNotFitError",
    "Foundation",
    "ICheckpointStore",
    "IFoundation",
    "ISharedFileSystem",
    "ModelShape",
    "Optimizer",
    "Plan",
    "PlanError",
    "RecipeOverrides",
    "RunController",
    "SharedFileSystem",
    "SmallModelJob",
    "TrainingImage",
    "TrainingJob",
    "TrainingMonitoring",
    "TrainingNetwork",
    "TrainingRole",
    "__version__",
    "make_plan",
]


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

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
    from cdk_blackwell.compliance.nag import acknowledge_findings
    from cdk_blackwell.compliance.plugin import TrainingRules
    from cdk_blackwell.infrastructure.alarms import AlarmThresholds
    from cdk_blackwell.infrastructure.capacity import Capacity
    from cdk_blackwell.infrastructure.checkpoint_store import CheckpointStore, ICheckpointStore
    from cdk_blackwell.infrastructure.file_system import ISharedFileSystem, SharedFileSystem
    from cdk_blackwell.infrastructure.foundation import Foundation, IFoundation
    from cdk_blackwell.infrastructure.monitoring import TrainingMonitoring
    from cdk_blackwell.infrastructure.network import ITrainingNetwork, TrainingNetwork
    from cdk_blackwell.infrastructure.package_index import PackageIndex
    from cdk_blackwell.infrastructure.s3_prefix import S3Prefix
    from cdk_blackwell.infrastructure.training_image import TrainingImage
    from cdk_blackwell.infrastructure.training_role import TrainingRole
    from cdk_blackwell.jobs.interface import ITrainingJob
    from cdk_blackwell.jobs.large_sharded_job import LargeShardedJob
    from cdk_blackwell.jobs.mid_model_job import MidModelJob
    from cdk_blackwell.jobs.request import RequestInputs
    from cdk_blackwell.jobs.small_model_job import SmallModelJob
    from cdk_blackwell.jobs.training_job import TrainingJob
    from cdk_blackwell.lifecycle.run_controller import RunController
    from cdk_blackwell.planning.errors import DoesNotFitError, PlanError
    from cdk_blackwell.planning.model_shape import ModelShape
    from cdk_blackwell.planning.plan import Plan, make_plan
    from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides
    from cdk_blackwell.planning.run_spec import Optimizer
    from cdk_blackwell.planning.storage_needs import StorageNeeds, storage_needs
    from cdk_blackwell.planning.trial import TrialReport

_EXPORTS = {
    "AlarmThresholds": "cdk_blackwell.infrastructure.alarms",
    "Capacity": "cdk_blackwell.infrastructure.capacity",
    "CheckpointStore": "cdk_blackwell.infrastructure.checkpoint_store",
    "DoesNotFitError": "cdk_blackwell.planning.errors",
    "Foundation": "cdk_blackwell.infrastructure.foundation",
    "ICheckpointStore": "cdk_blackwell.infrastructure.checkpoint_store",
    "IFoundation": "cdk_blackwell.infrastructure.foundation",
    "ISharedFileSystem": "cdk_blackwell.infrastructure.file_system",
    "ITrainingJob": "cdk_blackwell.jobs.interface",
    "ITrainingNetwork": "cdk_blackwell.infrastructure.network",
    "LargeShardedJob": "cdk_blackwell.jobs.large_sharded_job",
    "LayoutOverrides": "cdk_blackwell.planning.recipes",
    "MidModelJob": "cdk_blackwell.jobs.mid_model_job",
    "ModelShape": "cdk_blackwell.planning.model_shape",
    "Optimizer": "cdk_blackwell.planning.run_spec",
    "PackageIndex": "cdk_blackwell.infrastructure.package_index",
    "Plan": "cdk_blackwell.planning.plan",
    "PlanError": "cdk_blackwell.planning.errors",
    "RecipeOverrides": "cdk_blackwell.planning.recipes",
    "RequestInputs": "cdk_blackwell.jobs.request",
    "RunController": "cdk_blackwell.lifecycle.run_controller",
    "S3Prefix": "cdk_blackwell.infrastructure.s3_prefix",
    "SharedFileSystem": "cdk_blackwell.infrastructure.file_system",
    "SmallModelJob": "cdk_blackwell.jobs.small_model_job",
    "StorageNeeds": "cdk_blackwell.planning.storage_needs",
    "TrainingImage": "cdk_blackwell.infrastructure.training_image",
    "TrainingJob": "cdk_blackwell.jobs.training_job",
    "TrainingMonitoring": "cdk_blackwell.infrastructure.monitoring",
    "TrainingNetwork": "cdk_blackwell.infrastructure.network",
    "TrainingRules": "cdk_blackwell.compliance.plugin",
    "TrainingRole": "cdk_blackwell.infrastructure.training_role",
    "TrialReport": "cdk_blackwell.planning.trial",
    "acknowledge_findings": "cdk_blackwell.compliance.nag",
    "make_plan": "cdk_blackwell.planning.plan",
    "storage_needs": "cdk_blackwell.planning.storage_needs",
}

__all__ = [
    "AlarmThresholds",
    "Capacity",
    "CheckpointStore",
    "DoesNotFitError",
    "Foundation",
    "ICheckpointStore",
    "IFoundation",
    "ISharedFileSystem",
    "ITrainingJob",
    "ITrainingNetwork",
    "LargeShardedJob",
    "LayoutOverrides",
    "MidModelJob",
    "ModelShape",
    "Optimizer",
    "PackageIndex",
    "Plan",
    "PlanError",
    "RecipeOverrides",
    "RequestInputs",
    "RunController",
    "S3Prefix",
    "SharedFileSystem",
    "SmallModelJob",
    "StorageNeeds",
    "TrainingImage",
    "TrainingJob",
    "TrainingMonitoring",
    "TrainingNetwork",
    "TrainingRole",
    "TrainingRules",
    "TrialReport",
    "__version__",
    "acknowledge_findings",
    "make_plan",
    "storage_needs",
]


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(_EXPORTS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)

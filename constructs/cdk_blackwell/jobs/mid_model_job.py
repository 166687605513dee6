"""MidModelJob: 7B to 30B parameters in FP8, on one instance or a few."""

from __future__ import annotations

from cdk_blackwell.jobs.training_job import TrainingJob
from cdk_blackwell.planning.contracts import Tier


class MidModelJob(TrainingJob):
    """Train a model of 7B to 30B parameters: FP8, systematic activation checkpointing.

    On one instance checkpoints lie on its own disks and are synced to S3; on several they lie on
    the shared file system, which exports them. Parameters are those of ``TrainingJob``. What the
    tier takes is the planner's to say.
    """

    tier: Tier = "mid"

"""LargeShardedJob: 30B to 64B parameters in FP8, sharded over at least two instances."""

from __future__ import annotations

from cdk_blackwell.jobs.training_job import TrainingJob
from cdk_blackwell.planning.contracts import Tier


class LargeShardedJob(TrainingJob):
    """Train a model of 30B to 64B parameters: distributed, and the sharding decides speed and cost.

    Checkpoints (about 12 bytes a parameter) are written by all ranks to the shared file system,
    which exports them to S3. Parameters are those of ``TrainingJob``. What the tier takes, two
    instances at least, is the planner's to say.
    """

    tier: Tier = "large-sharded"

"""SmallModelJob: up to 7B parameters on one instance, BF16, checkpoints through local NVMe."""

from __future__ import annotations

from cdk_blackwell.jobs.training_job import TrainingJob
from cdk_blackwell.planning.contracts import Tier


class SmallModelJob(TrainingJob):
    """Train a model of up to 7B parameters: BF16, batch raised to what memory takes.

    Parameters are those of ``TrainingJob``. What the tier takes is the planner's to say.
    """

    tier: Tier = "small"

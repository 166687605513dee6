"""SmallModelJob: up to 7B parameters on one instance, BF16, checkpoints through local NVMe."""

from __future__ import annotations

from typing import ClassVar

from cdk_blackwell.jobs.training_job import TrainingJob
from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import SMALL_TIER_PARAMETERS


class SmallModelJob(TrainingJob):
    """Train a model of up to 7B parameters: BF16, batch raised to what memory takes.

    Parameters are those of ``TrainingJob``.
    """

    tier: ClassVar[Tier] = "small"

    def check_model(self, model: ModelShape) -> None:
        """Refuse a model above 7B and name the construct for it."""
        if model.parameter_count > SMALL_TIER_PARAMETERS:
            raise ValueError(
                f"{model.name} has {model.parameter_count / 1e9:.2f}B parameters; SmallModelJob "
                f"takes up to {SMALL_TIER_PARAMETERS / 1e9:.0f}B: use MidModelJob"
            )

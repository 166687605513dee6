"""SmallModelStack: one SmallModelJob on a foundation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aws_cdk import Duration, Stack
from constructs import Construct

from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.infrastructure.foundation import IFoundation
from cdk_blackwell.infrastructure.training_image import TrainingImage
from cdk_blackwell.jobs.small_model_job import SmallModelJob
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import RecipeOverrides, default_optimizer
from cdk_blackwell.planning.run_spec import Optimizer
from stacks.settings import Settings


class SmallModelStack(Stack):
    """The job, from the application's settings.

    :param foundation: what the job stands on.
    :param model: the model to train.
    :param settings: the application's context values.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        foundation: IFoundation,
        model: ModelShape,
        settings: Settings,
        **stack_props: Any,
    ) -> None:
        super().__init__(scope, construct_id, **stack_props)
        self.job: SmallModelJob = SmallModelJob(
            self,
            "Train",
            model=model,
            foundation=foundation,
            dataset_prefix=settings.dataset_prefix,
            sequence_length=settings.sequence_length,
            global_batch_tokens=settings.global_batch_tokens,
            train_tokens=settings.train_tokens,
            capacity=_capacity(settings),
            max_runtime=Duration.seconds(round(settings.max_runtime_hours * 3600)),
            max_attempts=settings.max_attempts,
            hourly_price_usd=settings.hourly_price_usd,
            max_cost_usd=settings.max_cost_usd,
            run_id=settings.run_id,
            overrides=_overrides(settings, model),
            checkpoint_interval=Duration.seconds(settings.checkpoint_interval_seconds),
            validation_interval_steps=settings.validation_interval_steps,
            validation_sequences=settings.validation_sequences,
            log_interval_steps=settings.log_interval_steps,
            in_cluster_restarts=settings.in_cluster_restarts,
            image=TrainingImage.from_uri(settings.image) if settings.image else None,
            wheelhouse=settings.wheelhouse,
            packages_in_image=settings.packages_in_image,
        )


def _capacity(settings: Settings) -> Capacity:
    max_pending = Duration.seconds(round(settings.max_pending_hours * 3600))
    if settings.training_plan_arn is None:
        return Capacity.on_demand(max_pending=max_pending)
    return Capacity.training_plan(settings.training_plan_arn, max_pending=max_pending)


def _overrides(settings: Settings, model: ModelShape) -> RecipeOverrides:
    return RecipeOverrides(
        precision=settings.precision,
        micro_batch_size=settings.micro_batch_size,
        activation_checkpointing=settings.activation_checkpointing,
        optimizer=_optimizer(settings, model),
    )


def _optimizer(settings: Settings, model: ModelShape) -> Optimizer | None:
    """The recipe's optimizer with the given values in it; None when none is given."""
    given = {
        name: value
        for name in ("peak_learning_rate", "warmup_steps")
        if (value := getattr(settings, name)) is not None
    }
    if not given:
        return None
    train_steps = -(-settings.train_tokens // max(1, settings.global_batch_tokens))
    return replace(default_optimizer(model, train_steps=train_steps), **given)

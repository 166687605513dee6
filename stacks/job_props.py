"""A job's parameters from the application's settings: the same for every tier."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from aws_cdk import Duration

from cdk_blackwell.infrastructure.capacity import Capacity
from cdk_blackwell.infrastructure.training_image import TrainingImage
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides, default_optimizer
from cdk_blackwell.planning.run_spec import Optimizer
from stacks.context import SettingsError
from stacks.settings import JobSettings


def job_props(settings: JobSettings) -> dict[str, Any]:
    """Keyword arguments of a ``TrainingJob``, beside its foundation."""
    model = settings.model_shape()
    return {
        "model": model,
        "dataset_prefix": settings.dataset_prefix,
        "sequence_length": settings.sequence_length,
        "global_batch_tokens": settings.global_batch_tokens,
        "train_tokens": settings.train_tokens,
        "instance_count": settings.instance_count,
        "capacity": _capacity(settings),
        "max_runtime": _hours(settings.max_runtime_hours),
        "max_attempts": settings.max_attempts,
        "hourly_price_usd": settings.hourly_price_usd,
        "max_cost_usd": settings.max_cost_usd,
        "waive_cost_ceiling": _waived(settings),
        "run_id": settings.run_id,
        "overrides": _overrides(settings, model),
        "layout": _layout(settings),
        "measured": settings.measured(),
        "checkpoint_interval": Duration.seconds(settings.checkpoint_interval_seconds),
        "validation_interval_steps": settings.validation_interval_steps,
        "validation_sequences": settings.validation_sequences,
        "log_interval_steps": settings.log_interval_steps,
        "in_cluster_restarts": settings.in_cluster_restarts,
        "hang_timeout": Duration.seconds(settings.hang_seconds),
        "allow_tcp": settings.allow_tcp,
        "image": TrainingImage.from_uri(settings.image) if settings.image else None,
        "wheelhouse": settings.wheelhouse,
        "packages_in_image": settings.packages_in_image,
    }


def _waived(settings: JobSettings) -> bool:
    """A job that is only defined needs no ceiling yet; who launches it gives one or waives it."""
    given = settings.hourly_price_usd is not None or settings.max_cost_usd is not None
    return settings.waive_cost_ceiling or (settings.run_id is None and not given)


def _hours(hours: float) -> Duration:
    return Duration.seconds(round(hours * 3600))


def _capacity(settings: JobSettings) -> Capacity:
    max_pending = _hours(settings.max_pending_hours)
    if settings.training_plan_arn is not None and settings.spot_max_wait_hours is not None:
        raise SettingsError(
            f"training_plan_arn {settings.training_plan_arn} and spot_max_wait_hours "
            f"{settings.spot_max_wait_hours:g} are both given: a job has one source of instances"
        )
    plan, spot = settings.training_plan_arn is not None, settings.spot_max_wait_hours is not None
    for key, fits, belongs_to in (
        ("training_plan_fee_usd", plan, "a job with training_plan_arn"),
        ("keep_alive_minutes", not plan and not spot, "on-demand instances"),
    ):
        if getattr(settings, key) is not None and not fits:
            raise SettingsError(
                f"context {key} is {getattr(settings, key):g}, which belongs to {belongs_to}: "
                "leave it out, or give it to the tier it is meant for by that tier's prefix"
            )
    if settings.training_plan_arn is not None:
        return Capacity.training_plan(
            settings.training_plan_arn,
            max_pending=max_pending,
            fee_usd=settings.training_plan_fee_usd,
        )
    if settings.spot_max_wait_hours is not None:
        return Capacity.spot(max_wait=_hours(settings.spot_max_wait_hours))
    keep_alive = settings.keep_alive_minutes
    return Capacity.on_demand(
        max_pending=max_pending,
        keep_alive=None if keep_alive is None else _hours(keep_alive / 60),
    )


def _overrides(settings: JobSettings, model: ModelShape) -> RecipeOverrides:
    return RecipeOverrides(
        precision=settings.precision,
        micro_batch_size=settings.micro_batch_size,
        activation_checkpointing=settings.activation_checkpointing,
        optimizer=_optimizer(settings, model),
    )


def _layout(settings: JobSettings) -> LayoutOverrides:
    return LayoutOverrides(
        shard_gpus=settings.shard_gpus,
        context_parallel=settings.context_parallel,
        tensor_parallel=settings.tensor_parallel,
        reshard_after_forward=settings.reshard_after_forward,
        gradient_sync=settings.gradient_sync,
    )


def _optimizer(settings: JobSettings, model: ModelShape) -> Optimizer | None:
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

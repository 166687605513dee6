"""``run.json`` of a job without its ``run_id``, which only a launch knows."""

from __future__ import annotations

from typing import Any, Final, get_args

from cdk_blackwell.planning.contracts import (
    CHANNEL_DATASET,
    DATASET_MANIFEST_FILE,
    SCHEMA_VERSION,
)
from cdk_blackwell.planning.plan import Plan
from cdk_blackwell.planning.run_spec import Checkpoint, Data, Limits, LossPolicy, RunSpec

CHECKPOINTS_KEPT: Final = 2
_ANY_RUN: Final = "any"


def run_template(
    *,
    job: str,
    plan: Plan,
    train_tokens: int,
    checkpoint_interval_seconds: float,
    export: bool,
    validation_interval_steps: int,
    validation_sequences: int,
    log_interval_steps: int,
    in_cluster_restarts: int,
    hang_seconds: float,
    loss_policy: LossPolicy,
) -> dict[str, Any]:
    """Plain JSON types; ValueError names a value that is out of range."""
    for name, value, lowest in (
        ("checkpoint_interval", checkpoint_interval_seconds, 1),
        ("validation_interval_steps", validation_interval_steps, 1),
        ("validation_sequences", validation_sequences, 1),
        ("log_interval_steps", log_interval_steps, 1),
        ("in_cluster_restarts", in_cluster_restarts, 0),
        ("hang_timeout", hang_seconds, 1),
    ):
        if value < lowest:
            raise ValueError(f"{name} {value} is not allowed: give {lowest} or more")
    if loss_policy not in get_args(LossPolicy):
        allowed = ", ".join(get_args(LossPolicy))
        raise ValueError(f"loss_policy {loss_policy!r} is not allowed: give one of {allowed}")
    spec = RunSpec(
        schema_version=SCHEMA_VERSION,
        run_id=_ANY_RUN,
        job=job,
        tier=plan.tier,
        model=plan.model,
        recipe=plan.recipe,
        layout=plan.layout,
        data=Data(
            channel=CHANNEL_DATASET,
            manifest=DATASET_MANIFEST_FILE,
            validation_sequences=validation_sequences,
        ),
        train_tokens=train_tokens,
        checkpoint=Checkpoint(
            interval_seconds=checkpoint_interval_seconds, keep=CHECKPOINTS_KEPT, export=export
        ),
        limits=Limits(
            in_cluster_restarts=in_cluster_restarts,
            log_interval_steps=log_interval_steps,
            validation_interval_steps=validation_interval_steps,
            hang_seconds=hang_seconds,
            loss_policy=loss_policy,
        ),
    )
    return {key: value for key, value in spec.to_dict().items() if key != "run_id"}

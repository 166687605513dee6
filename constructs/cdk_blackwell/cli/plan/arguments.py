"""From options to the planner's arguments: the model is found, the rest is handed on."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.cli.plan.options import PlanOptions
from cdk_blackwell.planning.json_text import is_there, read_json
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides
from cdk_blackwell.planning.trial import TrialReport

DEFAULT_SEQUENCE_LENGTH: Final = 8192
"""Tokens; what Llama 3 was trained with before its context was extended (2024, section 3.4.1)."""

HOW_TO_NAME_A_MODEL: Final = (
    "give --model a preset (cdk-blackwell plan --list-models) or a Hugging Face config.json"
)


def find_model(name: str) -> tuple[ModelShape, tuple[str, ...]]:
    """A preset, or the shape in a file, and what its reader warned of."""
    if not name.strip():
        raise CommandError(f"--model is empty; {HOW_TO_NAME_A_MODEL}")
    path = Path(name)
    try:
        if path.suffix == ".json" or is_there(path):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                shape = ModelShape.from_hugging_face_config(
                    path / "config.json" if path.is_dir() else path
                )
            return shape, tuple(str(warning.message) for warning in caught)
        return ModelShape.preset(name), ()
    except ValueError as error:
        raise CommandError(f"--model: {error}") from error


def planner_arguments(options: PlanOptions, model: ModelShape) -> dict[str, Any]:
    """Keyword arguments of ``make_plan``, without ``measured``."""
    return {
        "model": model,
        "sequence_length": options.sequence_length
        if options.sequence_length is not None
        else min(DEFAULT_SEQUENCE_LENGTH, model.max_position_embeddings),
        "tier": options.tier,
        "global_batch_tokens": options.global_batch_tokens,
        "train_tokens": options.train_tokens,
        "instance_count": options.nodes,
        "gpus": options.gpus,
        "overrides": RecipeOverrides(
            precision=options.precision,
            micro_batch_size=options.micro_batch_size,
            activation_checkpointing=options.activation_checkpointing,
            loss_chunks=options.loss_chunks,
            bf16_edge_blocks=options.bf16_edge_blocks,
            compile=False if options.eager else None,
            optimizer_implementation=options.optimizer,
        ),
        "layout": LayoutOverrides(
            shard_gpus=options.shard_gpus,
            context_parallel=options.context_parallel,
            ulysses=options.ulysses,
            tensor_parallel=options.tensor_parallel,
            reshard_after_forward=options.reshard,
            gradient_sync=options.gradient_sync,
        ),
        "hourly_price_usd": options.hourly_price_usd,
        "max_cost_usd": options.max_cost_usd,
    }


def find_trial(path: Path) -> TrialReport:
    """A trial run's report."""
    try:
        value = read_json(path, what="it")
        if not isinstance(value, dict):
            raise ValueError("it must hold one JSON object, as a trial run writes it")
        return TrialReport.from_dict(value)
    except ValueError as error:
        raise CommandError(f"--measured {path}: {error}") from error

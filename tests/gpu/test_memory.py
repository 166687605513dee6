"""Measured memory against the planner's, for the widths of a model of 1B parameters."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.predictions import predict_memory
from tests.gpu.one_gpu import run
from tests.training_scripts.tiny import tiny_spec
from trainer.batch_growth import read_memory
from trainer.parallel import World

pytestmark = pytest.mark.gpu

LENGTH: Final = 4096
ALLOCATED: Final = (0.98, 1.056)
RESERVED: Final = (0.95, 1.15)
"""Predicted over measured: the bars that the planner is held to elsewhere, against the memory
oracle and against published runs. No GPU has been held to them yet."""
KEPT: Final = {"reshard_after_forward": False, "gradient_sync": "step"}
CASES: Final[dict[str, tuple[dict[str, Any], dict[str, Any], int]]] = {
    "plain": ({}, {}, 1),
    "accumulation": ({}, {}, 3),
    "accumulation, weights kept, gradients summed once": ({}, KEPT, 3),
    "full checkpointing": ({"activation_checkpointing": "full"}, {}, 1),
    "selective checkpointing": ({"activation_checkpointing": "selective"}, {}, 1),
    "compiled": ({"compile": True}, {}, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_the_planner_foresees_what_is_allocated_and_bounds_what_is_reserved(
    name: str, world: World, tmp_path: Path, figures: dict[str, Any]
) -> None:
    recipe, layout, accumulation = CASES[name]
    sequences = 2
    spec = tiny_spec(
        shape=replace(ModelShape.preset("llama-3.2-1b"), num_hidden_layers=4),
        recipe={
            "precision": "bf16",
            "sequence_length": LENGTH,
            "global_batch_tokens": LENGTH * sequences * accumulation,
            "micro_batch_size": sequences,
            "loss_chunks": 8,
            **recipe,
        },
        layout={"shard_gpus": 1, **layout},
    )
    spec = replace(spec, train_tokens=4 * spec.recipe.global_batch_tokens)
    predicted = predict_memory(spec.model, spec.layout, spec.recipe)
    memory = read_memory(world)
    assert memory is not None
    if predicted.reserved_gib > memory.budget_gib:
        pytest.skip(f"needs {predicted.reserved_gib:.0f} GiB of this GPU's {memory.budget_gib:.0f}")
    told = run(spec, tmp_path, world)
    # The first step makes the optimizer's states: the whole is there from the second on.
    allocated = max(told.series("memory_allocated_gib").values())
    reserved = max(told.series("memory_reserved_gib").values())
    figures[f"memory {name}"] = {
        "allocated_gib": {"predicted": predicted.allocated_gib, "measured": allocated},
        "reserved_gib": {"predicted": predicted.reserved_gib, "measured": reserved},
    }
    for (low, high), ratio in (
        (ALLOCATED, predicted.allocated_gib / allocated),
        (RESERVED, predicted.reserved_gib / reserved),
    ):
        assert low <= ratio <= high, figures[f"memory {name}"]

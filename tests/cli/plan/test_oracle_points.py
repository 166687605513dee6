"""Every run that the oracle counted, planned as a user would ask for it: all of it given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from cdk_blackwell.cli.errors import RefusedError
from cdk_blackwell.cli.main import app
from cdk_blackwell.planning.contracts import EXIT_DOES_NOT_FIT, EXIT_DONE
from cdk_blackwell.planning.errors import DoesNotFitError
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import Plan, make_plan
from cdk_blackwell.planning.recipes import LayoutOverrides, RecipeOverrides

DATA = Path(__file__).parents[2] / "planning" / "data" / "memory_oracle.jsonl"
POINTS = [json.loads(line) for line in DATA.read_text().splitlines()]


def config_of(point: dict[str, Any]) -> dict[str, Any]:
    """A Hugging Face configuration of the point's model."""
    model: dict[str, Any] = point["model"]
    return model | {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "max_position_embeddings": 131_072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e4,
    }


def precision_of(point: dict[str, Any]) -> str:
    return "fp8" if point["precision"].startswith("fp8") else str(point["precision"])


def words_of(point: dict[str, Any], config: Path) -> list[str]:
    settings = {
        "model": config,
        "gpus": point["gpus"],
        "shard-gpus": point["gpus"] // point["replicas"],
        "sequence-length": point["sequence_length"],
        "micro-batch-size": point["micro_batch_size"],
        "activation-checkpointing": point["activation_checkpointing"],
        "loss-chunks": point["loss_chunks"],
        "precision": precision_of(point),
    }
    words = [word for name, value in settings.items() for word in (f"--{name}", str(value))]
    return ["plan", *words, "--eager", "--json"]


def name_of(point: dict[str, Any]) -> str:
    size, layers = point["model"]["hidden_size"], point["model"]["num_hidden_layers"]
    return "-".join(
        str(part)
        for part in (
            f"{size}x{layers}",
            point["gpus"],
            f"{point['micro_batch_size']}x{point['sequence_length']}",
            point["activation_checkpointing"],
            point["loss_chunks"],
            point["precision"][:4],
        )
    )


def test_all_24_points_are_there() -> None:
    assert len(POINTS) == 24


@pytest.mark.parametrize("point", POINTS, ids=name_of)
def test_a_counted_run_is_planned_as_it_was_counted(point: dict[str, Any], tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(json.dumps(config_of(point)))
    done = CliRunner().invoke(app, words_of(point, config))
    found = json.loads(done.stdout)
    if found["memory"]["fits"]:
        assert done.exit_code == EXIT_DONE
    else:
        assert isinstance(done.exception, RefusedError)
        assert done.exception.exit_code == EXIT_DOES_NOT_FIT
    assert (found["refusal"] is None) == found["memory"]["fits"]
    layout = {
        "shard_gpus": point["gpus"] // point["replicas"],
        "replicas": point["replicas"],
        "context_parallel": 1,
        "tensor_parallel": 1,
        "ulysses": 1,
        "reshard_after_forward": True,
        "gradient_sync": "micro_batch",
    }
    assert found["layout"] == layout
    assert found["micro_batch_size"] == point["micro_batch_size"]
    assert found["activation_checkpointing"] == point["activation_checkpointing"]
    assert found["memory"]["kernels"] == "eager"
    assert -0.001 < found["memory"]["allocated_gib"] / point["peak_gib"] - 1 < 0.011

    # From Python the same.
    arguments: dict[str, Any] = {
        "model": ModelShape.from_hugging_face_config(config),
        "sequence_length": point["sequence_length"],
        "gpus": point["gpus"],
        "layout": LayoutOverrides(shard_gpus=layout["shard_gpus"]),
        "overrides": RecipeOverrides(
            micro_batch_size=point["micro_batch_size"],
            activation_checkpointing=point["activation_checkpointing"],
            loss_chunks=point["loss_chunks"],
            precision=precision_of(point),  # type: ignore[arg-type]
            compile=False,
        ),
    }
    plan: Plan | None
    try:
        plan = make_plan(**arguments)
    except DoesNotFitError as error:
        assert not found["memory"]["fits"]
        plan = error.plan
    assert plan is not None
    assert plan.to_dict()["memory"] == found["memory"]

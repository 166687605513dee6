"""JSON Schema of what ``cdk-blackwell plan --json`` prints, made from the planner's dataclasses."""

from __future__ import annotations

from typing import Any, Final, get_args

from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.cost import CostEstimate
from cdk_blackwell.planning.decisions import Decision
from cdk_blackwell.planning.json_schema import DIALECT, schema_of
from cdk_blackwell.planning.memory import MemoryEstimate
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Layout, Precision, Recipe
from cdk_blackwell.planning.throughput import ThroughputEstimate

_INTEGER: Final = {"type": "integer"}
_NUMBER: Final = {"type": "number"}
_TEXTS: Final = {"type": "array", "items": {"type": "string"}}


def plan_schema() -> dict[str, Any]:
    """The schema (JSON Schema 2020-12); ``plan.schema.json`` beside this file is its copy."""
    return {
        "$schema": DIALECT,
        "title": "cdk-blackwell plan --json",
        **_closed(
            {
                "model": _with(
                    ModelShape, "the decoder to train", parameters=_described(_INTEGER, "in all")
                ),
                "tier": _described({"enum": list(get_args(Tier))}, "size tier of the recipe"),
                "gpus": _described(_INTEGER, "GPUs in all"),
                "instance_count": _described(_INTEGER, "instances that hold them"),
                "train_tokens": _described(_INTEGER, "tokens to train on"),
                "recipe": _with(Recipe, "the same object as in run.json"),
                "layout": _with(Layout, "how ranks divide the work"),
                "micro_batch_size": _described(_INTEGER, "as in recipe"),
                "activation_checkpointing": _described({"type": "string"}, "as in recipe"),
                "precision": _described({"enum": list(get_args(Precision))}, "as in recipe"),
                "memory": _with(
                    MemoryEstimate,
                    "predicted GiB per GPU",
                    fits=_described({"type": "boolean"}, "whether it stays within the budget"),
                ),
                "throughput": _with(ThroughputEstimate, "predicted speed"),
                "cost": _with(CostEstimate, "predicted time and money"),
                "assumptions": _described(_TEXTS, "defaults that stand for what was not given"),
                "warnings": _described(_TEXTS, "what to know before trusting the plan"),
                "decisions": {
                    "type": "array",
                    "items": schema_of(Decision, described=True),
                    "description": "why: the five groups of decisions, in order",
                },
                "refusal": _nullable(_refusal(), "what refuses the plan; exit code 3"),
                "verification": _nullable(_verification(), "of --verify"),
            }
        ),
    }


def _refusal() -> dict[str, Any]:
    change = _closed(
        {
            "settings": _described({"type": "object"}, "to replace, by the planner's names"),
            "required_gib": _described(
                _NUMBER, "predicted GiB per GPU after the change, the margin included"
            ),
            "total_usd": _described(
                {"type": ["number", "null"]},
                "predicted cost after the change; null without a price",
            ),
        }
    )
    return _closed(
        {
            "message": _described({"type": "string"}, "the value, the limit and the ways out"),
            "changes": {
                "type": "array",
                "items": change,
                "description": "each alone is enough, nearest first, checked to pass",
            },
        }
    )


def _verification() -> dict[str, Any]:
    return _closed(
        {
            "predicted_gib": _described(_NUMBER, "peak of live tensors, GiB per GPU"),
            "measured_gib": _described(_NUMBER, "the same as the memory tracker counted it"),
            "difference": _described(_NUMBER, "predicted over measured, minus one"),
            "seconds": _described(_NUMBER, "how long the tracker ran"),
            "method": _described({"type": "string"}, "what was run"),
        }
    )


def _closed(properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(properties),
        "properties": properties,
    }


def _with(kind: type, description: str, **further: dict[str, Any]) -> dict[str, Any]:
    """The dataclass and keys that are computed from it."""
    schema = schema_of(kind, described=True)
    properties = {**schema["properties"], **further}
    return {**_closed(properties), "description": description}


def _described(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {**schema, "description": description}


def _nullable(schema: dict[str, Any], description: str) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}], "description": description}

"""JSON Schema of ``trial.json``, for people and other programs."""

from __future__ import annotations

from typing import Any

from cdk_blackwell.planning.json_schema import DIALECT, schema_of
from cdk_blackwell.planning.trial import TrialReport


def trial_schema() -> dict[str, Any]:
    """The schema; ``trial.schema.json`` beside this file is its copy.

    Model, layout and recipe are those of ``run.json`` and are referred to there.
    """
    schema = {"$schema": DIALECT, "title": "trial.json", **schema_of(TrialReport)}
    schema["properties"]["model"] = _in_run("model")
    candidate = schema["properties"]["candidates"]["items"]["properties"]
    for name in ("layout", "recipe"):
        candidate[name] = _in_run(name)
    return schema


def _in_run(name: str) -> dict[str, str]:
    return {"$ref": f"run.schema.json#/properties/{name}"}

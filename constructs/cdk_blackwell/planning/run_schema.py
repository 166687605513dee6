"""JSON Schema of ``run.json``, made from the dataclasses, for people and other programs."""

from __future__ import annotations

from typing import Any

from cdk_blackwell.planning.json_schema import DIALECT, schema_of
from cdk_blackwell.planning.run_spec import RunSpec


def run_schema() -> dict[str, Any]:
    """The schema (JSON Schema 2020-12); ``run.schema.json`` beside this file is its copy."""
    return {"$schema": DIALECT, "title": "run.json", **schema_of(RunSpec)}

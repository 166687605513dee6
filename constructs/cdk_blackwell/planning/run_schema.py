"""JSON Schema of ``run.json``, made from the dataclasses, for people and other programs."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from cdk_blackwell.planning.run_spec import RunSpec

_SCALARS = {int: "integer", float: "number", str: "string", bool: "boolean"}


def run_schema() -> dict[str, Any]:
    """The schema (JSON Schema 2020-12); ``run.schema.json`` beside this file is its copy."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "run.json",
        **_schema(RunSpec),
    }


def _schema(hint: Any) -> dict[str, Any]:
    origin = get_origin(hint)
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin in (Union, UnionType):
        return {"anyOf": [_schema(option) for option in get_args(hint)]}
    if origin is tuple:
        return {"type": "array", "items": _schema(get_args(hint)[0])}
    if hint is type(None):
        return {"type": "null"}
    if is_dataclass(hint):
        hints = get_type_hints(hint)
        return {
            "type": "object",
            "additionalProperties": False,
            "required": [field.name for field in fields(hint)],
            "properties": {field.name: _schema(hints[field.name]) for field in fields(hint)},
        }
    return {"type": _SCALARS[hint]}

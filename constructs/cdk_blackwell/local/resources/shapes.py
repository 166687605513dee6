"""Turns a resource's CloudFormation properties into the input of an API call.

CloudFormation and the services' own APIs name the same things with other cases and types (``Code``
and ``code``, ``"30"`` and ``30``, policies as objects and as text). The service model of botocore
knows the API's side, so the translation follows it instead of a table for each type.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from botocore.model import ListShape, MapShape, Shape, StructureShape


class UnknownPropertyError(ValueError):
    """A property that the API call behind a resource type has no place for."""


def to_shape(value: Any, shape: Shape, path: str) -> Any:
    """``value`` as ``shape`` wants it; ``path`` names it in an error."""
    if isinstance(shape, StructureShape):
        return _to_structure(value, shape, path)
    if isinstance(shape, ListShape):
        members = value if isinstance(value, list) else [value]
        return [to_shape(item, shape.member, f"{path}[{at}]") for at, item in enumerate(members)]
    if isinstance(shape, MapShape):
        if isinstance(value, list):
            value = {pair["Key"]: pair["Value"] for pair in value}
        return {
            str(key): to_shape(item, shape.value, f"{path}.{key}") for key, item in value.items()
        }
    return _to_scalar(value, shape)


def _to_structure(value: Any, shape: StructureShape, path: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise UnknownPropertyError(f"{path}: expected an object, got {value!r}")
    members = {name.lower(): name for name in shape.members}
    # KMS is the one service whose tags are TagKey and TagValue.
    if set(value) == {"Key", "Value"} and "tagkey" in members:
        value = {"TagKey": value["Key"], "TagValue": value["Value"]}
    result = {}
    for key, item in value.items():
        name = members.get(key.lower())
        if name is None:
            raise UnknownPropertyError(
                f"{path}.{key} is not known to the embedded AWS (known: {', '.join(shape.members)})"
            )
        result[name] = to_shape(item, shape.members[name], f"{path}.{name}")
    return result


def _to_scalar(value: Any, shape: Shape) -> Any:
    kind = shape.type_name
    if kind == "string":
        if isinstance(value, (dict, list)):
            return json.dumps(value)
        return str(value).lower() if isinstance(value, bool) else str(value)
    if kind in ("integer", "long"):
        return int(value)
    if kind in ("float", "double"):
        return float(value)
    if kind == "boolean":
        return value if isinstance(value, bool) else str(value).lower() == "true"
    return value

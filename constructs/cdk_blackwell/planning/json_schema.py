"""JSON Schema of dataclasses, with their fields' docstrings as descriptions where wanted."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_SCALARS: Final = {int: "integer", float: "number", str: "string", bool: "boolean"}


def schema_of(hint: Any, *, described: bool = False) -> dict[str, Any]:
    """The schema of a type hint; ``described`` needs the source text at hand."""
    origin = get_origin(hint)
    if origin is Literal:
        return {"enum": list(get_args(hint))}
    if origin in (Union, UnionType):
        return {"anyOf": [schema_of(option, described=described) for option in get_args(hint)]}
    if origin in (tuple, list):
        return {"type": "array", "items": schema_of(get_args(hint)[0], described=described)}
    if origin in (dict, Mapping):
        values = schema_of(get_args(hint)[1], described=described)
        return {"type": "object", **({"additionalProperties": values} if values else {})}
    if hint is Any:
        return {}
    if hint is type(None):
        return {"type": "null"}
    if is_dataclass(hint) and isinstance(hint, type):
        return _object(hint, described=described)
    return {"type": _SCALARS[hint]}


def _object(kind: type, *, described: bool) -> dict[str, Any]:
    hints = get_type_hints(kind)
    texts = field_docstrings(kind) if described else {}
    return {
        "type": "object",
        "additionalProperties": False,
        "required": [field.name for field in fields(kind)],
        "properties": {
            field.name: {
                **schema_of(hints[field.name], described=described),
                **({"description": texts[field.name]} if field.name in texts else {}),
            }
            for field in fields(kind)
        },
    }


def field_docstrings(kind: type) -> dict[str, str]:
    """Field -> the string that follows it in the class's source."""
    (definition,) = ast.parse(inspect.cleandoc(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, text in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[field.target.id] = " ".join(text.value.value.split())
    return found

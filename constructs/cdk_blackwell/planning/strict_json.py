"""Dataclasses from JSON objects: unknown, missing and mistyped keys are refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints


def plain(value: Any) -> Any:
    """The same with lists for tuples, as JSON has them."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return value


@cache
def _type_hints(kind: Any) -> dict[str, Any]:
    """Resolved once: resolving costs more than all the reading."""
    return get_type_hints(kind)


def read_dataclass(kind: Any, value: Any, where: str) -> Any:
    """Build dataclass ``kind`` from a JSON object, refusing unknown, missing and mistyped keys.

    Integers are accepted where a float is asked for, booleans never where a number is.
    """
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be an object, got {_short(value)}")
    hints = _type_hints(kind)
    known = {field.name for field in fields(kind)}
    unknown = sorted(set(value) - known)
    if unknown:
        raise ValueError(
            f"{where} has unknown key {unknown[0]!r}; allowed are {', '.join(sorted(known))}"
        )
    missing = sorted(known - set(value))
    if missing:
        raise ValueError(f"{where} lacks key {missing[0]!r}")
    values = {name: _read(hints[name], value[name], f"{where}: {name}") for name in known}
    try:
        return kind(**values)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error


def _read(hint: Any, value: Any, where: str) -> Any:
    origin = get_origin(hint)
    if origin is Literal:
        if value not in get_args(hint):
            allowed = ", ".join(map(str, get_args(hint)))
            raise ValueError(f"{where} is {_short(value)}; allowed are {allowed}")
        return value
    if origin in (Union, UnionType):
        if value is None and type(None) in get_args(hint):
            return None
        (inner,) = (option for option in get_args(hint) if option is not type(None))
        return _read(inner, value, where)
    if origin is tuple:
        # Only tuple[X, ...] is used; JSON has lists.
        if not isinstance(value, (list, tuple)):
            raise ValueError(f"{where} must be a list, got {_short(value)}")
        return tuple(_read(get_args(hint)[0], item, where) for item in value)
    if origin is dict:
        if not isinstance(value, dict):
            raise ValueError(f"{where} must be an object, got {_short(value)}")
        return value
    if is_dataclass(hint):
        return read_dataclass(hint, value, where)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError as error:
            raise ValueError(f"{where} is {_short(value)}; no number is that large") from error
    if not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool):
        raise ValueError(f"{where} is {_short(value)}; a value of type {hint.__name__} is expected")
    return value


def _short(value: Any) -> str:
    """As it was given, cut where nobody reads on."""
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."

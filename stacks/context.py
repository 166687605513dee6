"""Reading one context value: text from the command line, numbers and booleans from ``cdk.json``."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Collection, Mapping
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

_MISSPELT: Final = 0.8
"""Likeness (difflib's ratio) from which an unknown key is taken for a misspelt one."""
_OTHER_NAMES: Final[Mapping[str, str]] = {
    "az": "availability_zone",
    "zone": "availability_zone",
    "batchsize": "micro_batch_size",
    "globalbatch": "global_batch_tokens",
    "instances": "instance_count",
    "nodes": "instance_count",
    "maxcost": "max_cost_usd",
    "maxhours": "max_runtime_hours",
    "maxpending": "max_pending_hours",
    "maxruntime": "max_runtime_hours",
    "maxwait": "spot_max_wait_hours",
    "spot": "spot_max_wait_hours",
    "price": "hourly_price_usd",
    "hourlyprice": "hourly_price_usd",
    "seqlen": "sequence_length",
    "tokens": "train_tokens",
}
"""Other names for a key, squeezed (lower case, letters and digits) -> the key."""
_TRUE: Final = {"true", "1", "yes"}
_FALSE: Final = {"false", "0", "no"}


class SettingsError(ValueError):
    """A context value that cannot be used: one line, what is allowed."""


def refuse_misspelt(
    context: Mapping[str, Any], known: Collection[str], prefixes: Collection[str]
) -> None:
    """A key that means one of ours is refused, because it would be ignored without a word.

    Any other unknown key is somebody else's (the CDK's own, ``~/.cdk.json``). ``prefixes`` may
    stand before every known key.
    """
    for key in sorted(context):
        prefix = next((prefix for prefix in prefixes if key.startswith(prefix)), "")
        name = key.removeprefix(prefix)
        if name in known:
            continue
        near = _meant(name, known)
        if near:
            meant = " or ".join(sorted(prefix + one for one in near))
            raise SettingsError(f"context key {key!r} is unknown: did you mean {meant}?")


def _meant(name: str, known: Collection[str]) -> list[str]:
    """Keys that ``name`` may stand for: spelt otherwise, called otherwise, or misspelt."""
    squeezed = _squeezed(name)
    same = [one for one in known if _squeezed(one) == squeezed]
    if same:
        return same
    other = _OTHER_NAMES.get(squeezed, "")
    return [other] if other in known else difflib.get_close_matches(name, known, cutoff=_MISSPELT)


def _squeezed(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def read_value(key: str, value: Any, hint: Any) -> Any:
    """``value`` as the type of a field; SettingsError names key, value and what is allowed.

    Types are text, whole numbers, numbers, booleans, choices (Literal) and tuples of choices, from
    text with commas or a list.
    """
    kind = _without_none(hint)
    if get_origin(kind) is Literal:
        return _choice(key, value, get_args(kind))
    if get_origin(kind) is tuple:
        return _choices(key, value, get_args(get_args(kind)[0]))
    if kind is str:
        return _text(key, value)
    if kind is bool:
        return _boolean(key, value)
    return _number(key, value, int if kind is int else float)


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    (kind,) = (option for option in get_args(hint) if option is not type(None))
    return kind


def _text(key: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    # An account of digits only is read as a number from cdk.json.
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise SettingsError(f"context {key} is {json.dumps(value)}: text is expected")


def _choice(key: str, value: Any, allowed: tuple[str, ...]) -> str:
    if value not in allowed:
        raise SettingsError(f"context {key} is {value!r}: allowed are {', '.join(allowed)}")
    return str(value)


def _choices(key: str, value: Any, allowed: tuple[str, ...]) -> tuple[str, ...]:
    parts = value if isinstance(value, list) else str(value).split(",")
    if not parts:
        raise SettingsError(f"context {key} is an empty list: give some of {', '.join(allowed)}")
    chosen = [
        _choice(key, part.strip() if isinstance(part, str) else part, allowed) for part in parts
    ]
    return tuple(dict.fromkeys(chosen))


def _boolean(key: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in _TRUE | _FALSE:
        return text in _TRUE
    raise SettingsError(f"context {key} is {value!r}: true or false is expected")


def _number(key: str, value: Any, kind: type[int] | type[float]) -> int | float:
    wanted = "a whole number without a unit" if kind is int else "a number"
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise SettingsError(f"context {key} is {json.dumps(value)}: {wanted} is expected")
    try:
        plain = isinstance(value, str) and kind is int and value.strip().lstrip("-").isdigit()
        # Text of digits is exact however long; float would round it.
        number = int(value) if plain else float(value)
        exact = kind(number)
    except (ValueError, OverflowError) as error:
        raise SettingsError(f"context {key} is {value!r}: {wanted} is expected") from error
    if number != number or number in (float("inf"), float("-inf")) or exact != number:
        raise SettingsError(f"context {key} is {value!r}: {wanted} is expected")
    if number < 0:
        raise SettingsError(f"context {key} is {value!r}: it cannot be negative")
    return exact

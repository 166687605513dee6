"""Check a CreateTrainingJob request against SageMaker's own model, as botocore carries it.

botocore itself checks types and required members only; patterns, lengths, ranges and enums stay
unseen until AWS refuses the request. Here all of them are checked, before a deploy.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import botocore
from botocore.model import ListShape, MapShape, ServiceModel, Shape, StringShape, StructureShape

SERVICE_MODEL: Final = "sagemaker/2017-07-24/service-2.json.gz"
OPERATION: Final = "CreateTrainingJob"

_PYTHON_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "boolean": (bool,),
}

_JAVA_CLASSES: Final = {
    r"\p{L}": r"\w",
    r"\p{N}": r"\d",
    r"\p{Z}": r"\s",
    r"\p{Alnum}": "A-Za-z0-9",
}


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One place where a request breaks the model."""

    where: str
    """Path in the request, for example ``StoppingCondition.MaxRuntimeInSeconds``."""
    got: Any
    allowed: str

    def __str__(self) -> str:
        return f"{self.where} is {self.got!r}; allowed: {self.allowed}"


def _never(value: object) -> bool:
    return False


def check_training_request(
    request: dict[str, Any], *, is_unresolved: Callable[[object], bool] = _never
) -> list[Violation]:
    """Every violation in a CreateTrainingJob request, in the order of its members.

    Values for which ``is_unresolved`` is true (CDK tokens) are skipped: their text is not what
    AWS will see.
    """
    shape = _service().operation_model(OPERATION).input_shape
    assert shape is not None
    return list(_check(shape, request, "", is_unresolved))


@cache
def _service() -> ServiceModel:
    path = Path(botocore.__file__).parent / "data" / SERVICE_MODEL
    return ServiceModel(json.loads(gzip.decompress(path.read_bytes())), "sagemaker")


def _check(
    shape: Shape, value: Any, where: str, is_unresolved: Callable[[object], bool]
) -> Iterator[Violation]:
    if is_unresolved(value):
        return
    if isinstance(shape, StructureShape):
        yield from _check_structure(shape, value, where, is_unresolved)
    elif isinstance(shape, ListShape):
        yield from _check_list(shape, value, where, is_unresolved)
    elif isinstance(shape, MapShape):
        yield from _check_map(shape, value, where, is_unresolved)
    else:
        yield from _check_scalar(shape, value, where)


def _check_structure(
    shape: StructureShape, value: Any, where: str, is_unresolved: Callable[[object], bool]
) -> Iterator[Violation]:
    if not isinstance(value, dict):
        yield Violation(where=where, got=value, allowed="an object")
        return
    prefix = f"{where}." if where else ""
    for name in shape.required_members:
        if name not in value:
            yield Violation(where=f"{prefix}{name}", got=None, allowed="a value (it is required)")
    for name, item in value.items():
        if name in shape.members:
            yield from _check(shape.members[name], item, f"{prefix}{name}", is_unresolved)
        else:
            yield Violation(
                where=f"{prefix}{name}", got=item, allowed=f"one of {', '.join(shape.members)}"
            )


def _check_list(
    shape: ListShape, value: Any, where: str, is_unresolved: Callable[[object], bool]
) -> Iterator[Violation]:
    if not isinstance(value, list):
        yield Violation(where=where, got=value, allowed="a list")
        return
    yield from _check_size(shape, len(value), where, "entries")
    for index, item in enumerate(value):
        yield from _check(shape.member, item, f"{where}[{index}]", is_unresolved)


def _check_map(
    shape: MapShape, value: Any, where: str, is_unresolved: Callable[[object], bool]
) -> Iterator[Violation]:
    if not isinstance(value, dict):
        yield Violation(where=where, got=value, allowed="an object")
        return
    yield from _check_size(shape, len(value), where, "entries")
    for name, item in value.items():
        yield from _check(shape.key, name, f"{where} (key {name!r})", is_unresolved)
        yield from _check(shape.value, item, f"{where}.{name}", is_unresolved)


def _check_size(shape: Shape, size: int, where: str, unit: str) -> Iterator[Violation]:
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if (low is not None and size < low) or (high is not None and size > high):
        yield Violation(where=where, got=f"{size} {unit}", allowed=f"{_range(low, high)} {unit}")


def _check_scalar(shape: Shape, value: Any, where: str) -> Iterator[Violation]:
    kinds = _PYTHON_TYPES.get(shape.type_name)
    if kinds is None:
        return
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        yield Violation(where=where, got=value, allowed=f"a value of type {shape.type_name}")
        return
    if isinstance(value, str):
        yield from _check_string(shape, value, where)
    elif not isinstance(value, bool):
        low, high = shape.metadata.get("min"), shape.metadata.get("max")
        if (low is not None and value < low) or (high is not None and value > high):
            yield Violation(where=where, got=value, allowed=_range(low, high))


def _check_string(shape: Shape, value: str, where: str) -> Iterator[Violation]:
    yield from _check_size(shape, len(value), where, "characters")
    if isinstance(shape, StringShape) and shape.enum and value not in shape.enum:
        yield Violation(where=where, got=value, allowed=f"one of {', '.join(shape.enum)}")
    pattern = shape.metadata.get("pattern")
    if pattern and not re.fullmatch(_python_pattern(pattern), value):
        yield Violation(where=where, got=value, allowed=f"text matching {pattern}")


def _python_pattern(pattern: str) -> str:
    r"""AWS writes Java's classes (``\p{L}``); Python's nearest, usable inside brackets."""
    for java, python in _JAVA_CLASSES.items():
        pattern = pattern.replace(java, python)
    return pattern


def _range(low: Any, high: Any) -> str:
    if high is None:
        return f"{low} or more"
    return f"{0 if low is None else low} to {high}"

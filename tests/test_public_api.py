"""The public API as text: whoever changes it changes ``tests/data/public_api.txt``, and sees it.

``CDKB_UPDATE_GOLDEN=1 pytest tests/test_public_api.py`` writes the file anew. A line that goes or
changes is a breaking change and belongs into the changelog.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import cdk_blackwell
import cdk_blackwell.testing

SNAPSHOT = Path(__file__).parent / "data" / "public_api.txt"
OWN = "cdk_blackwell"


def described(module: object, names: list[str]) -> Iterator[str]:
    """A line for each name, and one for each public member of a class of ours."""
    prefix = getattr(module, "__name__", "")
    for name in sorted(names):
        value = getattr(module, name)
        if inspect.isclass(value):
            yield f"{prefix}.{name}{_bases(value)}"
            yield from (f"{prefix}.{name}.{line}" for line in sorted(set(_members(value))))
        elif callable(value):
            yield f"{prefix}.{name}{_signature(value)}"
        else:
            yield f"{prefix}.{name}: {type(value).__name__}"


def _bases(value: type) -> str:
    bases = [base.__name__ for base in value.__bases__ if _is_ours(base)]
    return f"({', '.join(bases)})" if bases else ""


def _members(value: type) -> Iterator[str]:
    """What a class defines itself; of a private base, which has no lines of its own, all."""
    if dataclasses.is_dataclass(value):
        for item in dataclasses.fields(value):
            default = "" if item.default is dataclasses.MISSING else f" = {_short(item.default)}"
            yield f"{item.name}: {item.type}{default}"
    for owner in value.__mro__:
        if owner is not value and not (owner.__name__.startswith("_") and _is_ours(owner)):
            continue
        for name, member in vars(owner).items():
            made = not (dataclasses.is_dataclass(owner) or getattr(owner, "_is_protocol", False))
            if name == "__init__" and made:
                yield f"__init__{_signature(member)}"
            elif name.startswith("_"):
                continue
            elif isinstance(member, property):
                yield f"{name} (property)"
            elif isinstance(member, (classmethod, staticmethod)):
                yield f"{name}{_signature(member.__func__)}"
            elif inspect.isfunction(member):
                yield f"{name}{_signature(member)}"


def _is_ours(value: type) -> bool:
    return value.__module__.startswith(OWN)


def _signature(function: Callable[..., object]) -> str:
    """With annotations as written, and defaults that are more than a literal left out."""
    found = inspect.signature(function)
    return str(
        found.replace(
            parameters=[
                parameter
                if parameter.default is parameter.empty
                else parameter.replace(default=_Literal(_short(parameter.default)))
                for parameter in found.parameters.values()
            ]
        )
    )


class _Literal:
    """Prints as its text."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _short(default: object) -> str:
    simple = isinstance(default, (bool, float, int, str, type(None)))
    return repr(default) if simple or default == () else "..."


def test_the_public_api_is_what_was_written_down() -> None:
    lines = [
        *described(cdk_blackwell, [n for n in cdk_blackwell.__all__ if n != "__version__"]),
        *described(cdk_blackwell.testing, cdk_blackwell.testing.__all__),
    ]
    text = "\n".join(lines) + "\n"
    if os.environ.get("CDKB_UPDATE_GOLDEN"):
        SNAPSHOT.write_text(text)
    assert text == SNAPSHOT.read_text()

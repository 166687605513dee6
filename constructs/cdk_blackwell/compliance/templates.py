"""CloudFormation templates as the rules read them: resources, and what refers to what.

Only templates are read, never constructs, so the rules work on anybody's stacks. All templates of
an app are read together, because a job, its file system and its bucket often lie in three of them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

_REFERENCE: Final = re.compile(r"\$\{([A-Za-z0-9]+)(?:\.[A-Za-z0-9.]+)?\}")
"""A logical id inside Fn::Sub; ``AWS::Region`` and the like hold colons and are none."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Resource:
    """One resource of one template."""

    logical_id: str
    body: Mapping[str, Any]
    template: Template

    @property
    def type(self) -> str:
        """``AWS::S3::Bucket``."""
        return str(as_mapping(self.body).get("Type", ""))

    @property
    def properties(self) -> Mapping[str, Any]:
        """As written, with intrinsic functions."""
        return as_mapping(self.body.get("Properties"))

    @property
    def kept(self) -> bool:
        """Whether it stays when its stack goes."""
        return self.body.get("DeletionPolicy") in ("Retain", "RetainExceptOnCreate", "Snapshot")

    def find(self, *path: str) -> Any:
        """A property by path, as ``member`` reads it."""
        return member(self.properties, *path)

    @cached_property
    def needs(self) -> frozenset[str]:
        """Logical ids that CloudFormation makes before this one: named or referred to."""
        named = [name for name in as_list(self.body.get("DependsOn")) if isinstance(name, str)]
        return frozenset(named) | frozenset(_references(self.properties))

    @cached_property
    def all_needs(self) -> frozenset[str]:
        """The same, and what those need in turn; within its template."""
        found: set[str] = set()
        todo = set(self.needs)
        while todo:
            name = todo.pop()
            if name not in found and (resource := self.template.resources.get(name)):
                found.add(name)
                todo |= resource.needs
        return frozenset(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Template:
    """One template."""

    name: str
    """Path of its stack in the app, or whatever tells it apart."""
    body: Mapping[str, Any]
    path: Path | None = None
    """File it was read from; assets are looked for beside it."""

    @cached_property
    def resources(self) -> dict[str, Resource]:
        """By logical id."""
        return {
            name: Resource(logical_id=name, body=body, template=self)
            for name, body in as_mapping(self.body.get("Resources")).items()
            if isinstance(body, Mapping)
        }

    @cached_property
    def exports(self) -> dict[str, Any]:
        """Values of its outputs by export name, as far as names are plain text."""
        return {
            name: output["Value"]
            for output in as_mapping(self.body.get("Outputs")).values()
            if isinstance(name := member(output, "Export", "Name"), str) and "Value" in output
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Templates:
    """Every template of an app."""

    all: tuple[Template, ...]

    @classmethod
    def of(cls, *bodies: Mapping[str, Any]) -> Templates:
        """From plain dictionaries, for tests and for other tools."""
        return cls(
            all=tuple(Template(name=f"template {n}", body=body) for n, body in enumerate(bodies, 1))
        )

    @classmethod
    def read(cls, paths: Mapping[str, Path]) -> Templates:
        """From files: name of the stack to its template."""
        return cls(
            all=tuple(
                Template(name=name, body=json.loads(path.read_text()), path=path)
                for name, path in paths.items()
            )
        )

    def resources(self, *types: str) -> Iterator[Resource]:
        """Those of the given types, over all templates."""
        for template in self.all:
            for resource in template.resources.values():
                if resource.type in types:
                    yield resource

    def target(self, value: Any, template: Template) -> Resource | None:
        """The resource that a Ref, Fn::GetAtt or Fn::ImportValue in ``template`` speaks of.

        Text that holds one reference counts as that; None for anything that is not in the app.
        """
        if not isinstance(value, Mapping) or len(value) != 1:
            return None
        ((function, argument),) = value.items()
        if function == "Ref":
            return template.resources.get(str(argument))
        if function == "Fn::GetAtt":
            found = template.resources.get(_owner(argument))
            # An output of a nested stack: whose it is, this template does not say.
            return None if found and found.type == "AWS::CloudFormation::Stack" else found
        if function == "Fn::ImportValue" and isinstance(argument, str):
            for other in self.all:
                if argument in other.exports:
                    return self.target(other.exports[argument], other)
        if function in ("Fn::Join", "Fn::Sub"):
            return self._only_target(value, template)
        return None

    def _only_target(self, value: Any, template: Template) -> Resource | None:
        found = {
            id(target): target
            for part in _intrinsics(value)
            if (target := self.target(part, template)) is not None
        }
        return next(iter(found.values())) if len(found) == 1 else None

    def same(self, one: Any, one_in: Template, other: Any, other_in: Template) -> bool | None:
        """Whether two values name the same thing; None where that cannot be known."""
        targets = self.target(one, one_in), self.target(other, other_in)
        if None not in targets:
            return targets[0] is targets[1]
        if isinstance(one, str) and isinstance(other, str):
            return one == other
        return True if one_in is other_in and one == other else None


def is_intrinsic(value: Any) -> bool:
    """Whether CloudFormation or a state machine fills this in, so that it is not known at synth."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return False
    (name,) = value
    return name == "Ref" or str(name).startswith("Fn::")


def member(value: Any, *path: str) -> Any:
    """What lies at ``path``; None where a step is missing.

    Where a step is an intrinsic function, that function: what lies below it is not known.
    """
    for step in path:
        if is_intrinsic(value):
            return value
        if not isinstance(value, Mapping):
            return None
        value = value.get(step)
    return value


def as_mapping(value: Any) -> Mapping[str, Any]:
    """``value``, or nothing where it is no mapping."""
    return value if isinstance(value, Mapping) else {}


def as_list(value: Any) -> list[Any]:
    """CloudFormation takes one thing or a list of it in many places."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def _owner(attribute: Any) -> str:
    """The logical id in the argument of Fn::GetAtt, ``"Id.Attribute"`` or a list of the two."""
    first = next(iter(as_list(attribute)), "")
    return first.split(".")[0] if isinstance(first, str) else ""


def _pattern(argument: Any) -> str:
    """The text in the argument of Fn::Sub, which may stand in a list with its variables."""
    first = next(iter(as_list(argument)), "")
    return first if isinstance(first, str) else ""


def _references(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _references(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key == "Ref" and isinstance(item, str):
                yield item
            elif key == "Fn::GetAtt":
                yield _owner(item)
            elif key == "Fn::Sub":
                yield from _REFERENCE.findall(_pattern(item))
                yield from _references(item)
            else:
                yield from _references(item)


def _intrinsics(value: Any) -> Iterator[Mapping[str, Any]]:
    """Every Ref, Fn::GetAtt and Fn::ImportValue inside ``value``."""
    if isinstance(value, list):
        for item in value:
            yield from _intrinsics(item)
    elif isinstance(value, Mapping):
        for key, item in value.items():
            if key in ("Ref", "Fn::GetAtt", "Fn::ImportValue"):
                if not (isinstance(item, str) and item.startswith("AWS::")):
                    yield value
            elif key == "Fn::Sub":
                yield from ({"Ref": name} for name in _REFERENCE.findall(_pattern(item)))
                yield from _intrinsics(item)
            else:
                yield from _intrinsics(item)

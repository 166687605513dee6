"""CloudFormation templates: reading, parameters, conditions, functions, dependency order."""

from __future__ import annotations

import base64
import graphlib
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

NO_VALUE: Final = object()
"""What ``{"Ref": "AWS::NoValue"}`` gives; removed from lists and objects."""

_SUBSTITUTION = re.compile(r"\$\{(?P<literal>!)?(?P<name>[^}]+)\}")
_DYNAMIC_REFERENCE = re.compile(r"\{\{resolve:[a-z-]+:")


class TemplateError(ValueError):
    """The template is not valid; the text is shown to the user as it is."""


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """YAML as CloudFormation reads it: dates stay text, ``!Sub`` and its like are functions."""


def _construct_function(loader: yaml.Loader, suffix: str, node: yaml.Node) -> Any:
    name = suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}"
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    return {name: value}


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_multi_constructor("!", _construct_function)


def read_template(body: str) -> dict[str, Any]:
    """Read a JSON or YAML template; TemplateError when it has no resources."""
    template: Any
    try:
        template = json.loads(body) if body.lstrip().startswith("{") else yaml.load(body, _Loader)
    except (ValueError, yaml.YAMLError) as error:
        raise TemplateError(f"Template format error: {error}") from None
    resources = template.get("Resources") if isinstance(template, dict) else None
    if not isinstance(resources, dict) or not resources:
        raise TemplateError("Template format error: At least one Resources member must be defined.")
    for name, resource in resources.items():
        if not isinstance(resource, dict) or "Type" not in resource:
            raise TemplateError(f"Template format error: resource [{name}] has no Type")
    result: dict[str, Any] = template
    return result


def resolve_parameters(
    template: Mapping[str, Any],
    given: Mapping[str, str],
    read_ssm: Callable[[str], str],
) -> dict[str, Any]:
    """Values for ``Ref``: defaults, lists split, SSM parameters read."""
    values: dict[str, Any] = {}
    for name, declared in template.get("Parameters", {}).items():
        value = given.get(name, declared.get("Default"))
        if value is None:
            raise TemplateError(f"Parameters: [{name}] must have values")
        allowed = declared.get("AllowedValues")
        if allowed and value not in allowed:
            raise TemplateError(
                f"Parameter '{name}' must be one of AllowedValues {allowed}, got {value!r}"
            )
        kind = str(declared.get("Type", "String"))
        if kind.startswith("AWS::SSM::Parameter::Value"):
            value = read_ssm(str(value))
        if "List" in kind:
            value = [part.strip() for part in str(value).split(",")]
        values[name] = value
    unknown = sorted(set(given) - set(values))
    if unknown:
        raise TemplateError(f"Parameters: [{', '.join(unknown)}] do not exist in the template")
    return values


@dataclass(kw_only=True)
class Scope:
    """What names mean while a template is resolved."""

    template: Mapping[str, Any]
    values: Mapping[str, Any]
    """Parameters and pseudo parameters."""
    physical_id: Callable[[str], str]
    """Of a resource by logical id; KeyError when there is none."""
    attribute: Callable[[str, str], Any]
    """Of a resource by logical id and attribute name; KeyError when there is none."""
    import_value: Callable[[str], str]
    zones: Callable[[str], list[str]]
    """Availability zones of a region."""
    _conditions: dict[str, bool] = field(default_factory=dict)

    def condition(self, name: str) -> bool:
        """Value of a named condition."""
        if name not in self._conditions:
            try:
                definition = self.template["Conditions"][name]
            except KeyError:
                raise TemplateError(f"Template error: unresolved condition {name}") from None
            self._conditions[name] = bool(self.resolve(definition))
        return self._conditions[name]

    def includes(self, definition: Mapping[str, Any]) -> bool:
        """Whether a resource or output exists, by its condition."""
        return "Condition" not in definition or self.condition(definition["Condition"])

    def resolve(self, value: Any) -> Any:
        """Replace every function in ``value``; objects and lists lose their NO_VALUE members."""
        if isinstance(value, dict):
            if len(value) == 1:
                name, argument = next(iter(value.items()))
                if name == "Ref" or (name == "Condition" and isinstance(argument, str)):
                    return self.reference(argument) if name == "Ref" else self.condition(argument)
                if name.startswith("Fn::"):
                    function = _FUNCTIONS.get(name)
                    if function is None:
                        raise TemplateError(f"Template error: {name} is not known here")
                    return function(self, argument)
            resolved = {key: self.resolve(member) for key, member in value.items()}
            return {key: member for key, member in resolved.items() if member is not NO_VALUE}
        if isinstance(value, list):
            members = [self.resolve(member) for member in value]
            return [member for member in members if member is not NO_VALUE]
        if isinstance(value, str) and _DYNAMIC_REFERENCE.search(value):
            raise TemplateError(f"dynamic reference {value!r} is not known here")
        return value

    def reference(self, name: str) -> Any:
        """``Ref``."""
        if name == "AWS::NoValue":
            return NO_VALUE
        if name in self.values:
            return self.values[name]
        try:
            return self.physical_id(name)
        except KeyError:
            raise TemplateError(f"Template error: unresolved dependency [{name}]") from None

    def get_attribute(self, resource: str, name: str) -> Any:
        """``Fn::GetAtt``."""
        try:
            return self.attribute(resource, name)
        except KeyError:
            kind = self.template["Resources"].get(resource, {}).get("Type", "undefined resource")
            raise TemplateError(
                f"Template error: resource {resource} ({kind}) does not support attribute {name}"
            ) from None


def _sub(scope: Scope, argument: Any) -> str:
    text, local = argument if isinstance(argument, list) else (argument, {})

    def replace(match: re.Match[str]) -> str:
        name = match["name"].strip()
        if match["literal"]:
            return "${" + name + "}"
        if name in local:
            return _text(scope.resolve(local[name]))
        if "." in name:
            return _text(scope.get_attribute(*name.split(".", 1)))
        return _text(scope.reference(name))

    return _SUBSTITUTION.sub(replace, text)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _join(scope: Scope, argument: Any) -> str:
    separator, parts = argument
    return str(separator).join(_text(part) for part in scope.resolve(parts))


def _get_attribute(scope: Scope, argument: Any) -> Any:
    parts = argument.split(".", 1) if isinstance(argument, str) else argument
    return scope.get_attribute(parts[0], scope.resolve(parts[1]))


def _find_in_map(scope: Scope, argument: Any) -> Any:
    name, first, second = scope.resolve(argument)[:3]
    try:
        return scope.template["Mappings"][name][first][second]
    except KeyError:
        raise TemplateError(
            f"Template error: Unable to get mapping for {name}::{first}::{second}"
        ) from None


def _choose(scope: Scope, argument: Any) -> Any:
    name, when_true, when_false = argument
    return scope.resolve(when_true if scope.condition(name) else when_false)


def _equals(scope: Scope, argument: Any) -> bool:
    left, right = scope.resolve(argument)
    return _text(left) == _text(right)


_FUNCTIONS: Final[Mapping[str, Callable[[Scope, Any], Any]]] = {
    "Fn::Base64": lambda scope, text: base64.b64encode(scope.resolve(text).encode()).decode(),
    "Fn::Equals": _equals,
    "Fn::And": lambda scope, members: all(scope.resolve(member) for member in members),
    "Fn::Or": lambda scope, members: any(scope.resolve(member) for member in members),
    "Fn::Not": lambda scope, members: not scope.resolve(members[0]),
    "Fn::FindInMap": _find_in_map,
    "Fn::GetAtt": _get_attribute,
    "Fn::GetAZs": lambda scope, region: scope.zones(
        scope.resolve(region) or scope.values["AWS::Region"]
    ),
    "Fn::If": _choose,
    "Fn::ImportValue": lambda scope, name: scope.import_value(scope.resolve(name)),
    "Fn::Join": _join,
    "Fn::Select": lambda scope, pair: scope.resolve(pair[1])[int(scope.resolve(pair[0]))],
    "Fn::Split": lambda scope, pair: scope.resolve(pair[1]).split(pair[0]),
    "Fn::Sub": _sub,
    "Fn::ToJsonString": lambda scope, value: json.dumps(scope.resolve(value)),
}


def references(value: Any) -> Iterator[str]:
    """Every name that ``value`` refers to (resources, parameters, pseudo parameters)."""
    if isinstance(value, list):
        for member in value:
            yield from references(member)
    elif isinstance(value, dict):
        for key, member in value.items():
            if key == "Ref":
                yield member
            elif key == "Fn::GetAtt":
                yield member.split(".", 1)[0] if isinstance(member, str) else member[0]
            elif key == "Fn::Sub":
                text, local = member if isinstance(member, list) else (member, {})
                for match in _SUBSTITUTION.finditer(text):
                    if not match["literal"]:
                        yield match["name"].strip().split(".", 1)[0]
                yield from references(local)
            else:
                yield from references(member)


def dependencies(template: Mapping[str, Any]) -> dict[str, set[str]]:
    """For each resource, the resources that must exist before it."""
    resources = template["Resources"]
    found = {}
    for name, definition in resources.items():
        explicit = definition.get("DependsOn", [])
        wanted = {explicit} if isinstance(explicit, str) else set(explicit)
        wanted |= set(references(definition.get("Properties", {})))
        found[name] = {other for other in wanted if other in resources and other != name}
    return found


def creation_order(template: Mapping[str, Any]) -> list[str]:
    """Logical ids, each after all it depends on; TemplateError on a circle."""
    try:
        return list(graphlib.TopologicalSorter(dependencies(template)).static_order())
    except graphlib.CycleError as error:
        circle = ", ".join(error.args[1])
        raise TemplateError(f"Circular dependency between resources: [{circle}]") from None

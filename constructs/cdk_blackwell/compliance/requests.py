"""CreateTrainingJob requests wherever templates hide them.

CloudFormation has no creatable type for a training job, so requests travel as JSON text: in the
definition of this library's ``Custom::CdkBlackwellRun``, or in a Step Functions state machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cdk_blackwell.compliance.templates import (
    Resource,
    Templates,
    as_list,
    as_mapping,
    is_intrinsic,
    member,
)

RUN_TYPE: Final = "Custom::CdkBlackwellRun"
"""``lifecycle.handler.definition.RESOURCE_TYPE``; a test holds the two together."""
_PLACEHOLDER: Final = re.compile(r"\{\{[a-z_]+\}\}")
_MARK: Final = "\N{SYMBOL FOR SUBSTITUTE}"
_MARKED: Final = re.compile(f"{_MARK}(\\d+){_MARK}")


@dataclass(frozen=True, kw_only=True, eq=False)
class TrainingRequest:
    """One request, as far as the template knows it. Intrinsic functions stand as in templates."""

    resource: Resource
    """Carries it."""
    where: str
    """Path of the request in that resource."""
    request: Mapping[str, Any]
    definition: Mapping[str, Any] | None
    """This library's definition around it; None in somebody else's stack."""

    def find(self, *path: str) -> Any:
        """A member by path, as ``templates.member`` reads it."""
        return member(self.request, *path)

    def asks_for(self, *path: str) -> bool:
        """Whether a member is known to be there, whatever its value will be."""
        around, value = self.find(*path[:-1]), self.find(*path)
        if is_intrinsic(around) or (isinstance(value, Mapping) and "Fn::If" in value):
            return False
        return value is not None

    @property
    def instance_type(self) -> str:
        """Empty where it is not known at synth."""
        value = self.find("ResourceConfig", "InstanceType")
        return value if isinstance(value, str) else ""

    @property
    def instance_count(self) -> int | None:
        """None where it is not known at synth."""
        value = self.find("ResourceConfig", "InstanceCount")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def multi_node(self) -> bool:
        """Known to run on several instances."""
        return (self.instance_count or 0) > 1

    @property
    def spot(self) -> bool:
        """Managed spot training."""
        return self.find("EnableManagedSpotTraining") is True

    @property
    def environment(self) -> Mapping[str, Any]:
        """Of the container; nothing where it is not known at synth."""
        found = self.find("Environment")
        return {} if is_intrinsic(found) else as_mapping(found)

    @property
    def security_groups(self) -> list[Any]:
        """Values of VpcConfig."""
        found = self.find("VpcConfig", "SecurityGroupIds")
        return list(found) if isinstance(found, list) else []

    @property
    def subnets(self) -> list[Any]:
        """Values of VpcConfig."""
        found = self.find("VpcConfig", "Subnets")
        return list(found) if isinstance(found, list) else []

    @property
    def file_systems(self) -> list[Mapping[str, Any]]:
        """The FileSystemDataSource of every channel that has one."""
        channels = self.find("InputDataConfig")
        sources = [
            member(channel, "DataSource", "FileSystemDataSource") for channel in as_list(channels)
        ]
        return [s for s in sources if isinstance(s, Mapping) and not is_intrinsic(s)]

    def groups(self, templates: Templates) -> list[Resource]:
        """Its security groups, as far as the app makes them."""
        found = [templates.target(value, self.resource.template) for value in self.security_groups]
        return [group for group in found if group is not None]

    def buckets(self, templates: Templates) -> list[tuple[str, Resource]]:
        """``(what it is for, bucket)``: where checkpoints and models go, in this app."""
        places = {
            "checkpoints": self.find("CheckpointConfig", "S3Uri"),
            "output": self.find("OutputDataConfig", "S3OutputPath"),
            "runs": (self.definition or {}).get("checkpoint_bucket"),
        }
        found: dict[int, tuple[str, Resource]] = {}
        for what, value in places.items():
            target = templates.target(value, self.resource.template)
            if target is not None and target.type == "AWS::S3::Bucket":
                found.setdefault(id(target), (what, target))
        return list(found.values())


@lru_cache(maxsize=1)
def training_requests(templates: Templates) -> tuple[TrainingRequest, ...]:
    """Every request in the templates; text that is no JSON is somebody else's and passed over.

    Read once for all rules.
    """
    return (
        *(r for each in templates.resources(RUN_TYPE) for r in _of_run(each)),
        *(
            r
            for each in templates.resources("AWS::StepFunctions::StateMachine")
            for r in _of_state_machine(each)
        ),
    )


def is_plain(value: Any) -> bool:
    """Text that is known at synth: no intrinsic function, no placeholder of a launch."""
    return isinstance(value, str) and not _PLACEHOLDER.search(value)


def _of_run(resource: Resource) -> Iterator[TrainingRequest]:
    definition = parse(resource.properties.get("Definition"))
    if isinstance(definition, Mapping) and isinstance(definition.get("request"), Mapping):
        yield TrainingRequest(
            resource=resource,
            where="Properties/Definition",
            request=definition["request"],
            definition=definition,
        )


def _of_state_machine(resource: Resource) -> Iterator[TrainingRequest]:
    for name in ("DefinitionString", "Definition"):
        machine = parse(resource.properties.get(name))
        for path, state in _states(machine, f"Properties/{name}"):
            parameters = state.get("Parameters") or state.get("Arguments")
            if isinstance(parameters, Mapping):
                yield TrainingRequest(
                    resource=resource,
                    where=path,
                    request=_without_paths(parameters),
                    definition=None,
                )


def _states(value: Any, path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _states(item, f"{path}/{index}")
    elif isinstance(value, Mapping):
        if ":sagemaker:createTrainingJob" in json.dumps(value.get("Resource", "")):
            yield path, value
        for key, item in value.items():
            yield from _states(item, f"{path}/{key}")


def _without_paths(value: Any) -> Any:
    """``"InstanceCount.$": "$.count"`` becomes ``InstanceCount``, not known at synth."""
    if isinstance(value, list):
        return [_without_paths(item) for item in value]
    if isinstance(value, Mapping):
        return {
            key.removesuffix(".$"): {"Fn::State": item}
            if key.endswith(".$")
            else _without_paths(item)
            for key, item in value.items()
        }
    return value


def parse(value: Any) -> Any:
    """JSON text with intrinsic functions inside, as a value with them in their places.

    None when it is no JSON. Text around an intrinsic function becomes an Fn::Join.
    """
    if isinstance(value, Mapping) and "Fn::Join" in value:
        separator, parts = _join_of(value["Fn::Join"])
    elif isinstance(value, str | list):
        separator, parts = "", value if isinstance(value, list) else [value]
    else:
        return value if isinstance(value, Mapping) else None
    intrinsics = [part for part in parts if not isinstance(part, str)]
    count = iter(range(len(intrinsics)))
    text = separator.join(
        part if isinstance(part, str) else f"{_MARK}{next(count)}{_MARK}" for part in parts
    )
    try:
        return _restore(json.loads(text), intrinsics)
    except ValueError:
        return None


def _join_of(argument: Any) -> tuple[str, list[Any]]:
    """Separator and parts; one part that is no text where the argument is not written out."""
    match argument:
        case [str(separator), list(parts)]:
            return separator, parts
        case _:
            return "", [{"Fn::Join": argument}]


def _restore(value: Any, intrinsics: list[Any]) -> Any:
    if isinstance(value, list):
        return [_restore(item, intrinsics) for item in value]
    if isinstance(value, Mapping):
        return {key: _restore(item, intrinsics) for key, item in value.items()}
    if not isinstance(value, str) or _MARK not in value:
        return value
    whole = _MARKED.fullmatch(value)
    if whole:
        return intrinsics[int(whole[1])]
    pieces = _MARKED.split(value)
    joined = [intrinsics[int(p)] if at % 2 else p for at, p in enumerate(pieces)]
    return {"Fn::Join": ["", [piece for piece in joined if piece != ""]]}

"""What a CloudFormation resource type is to the embedded AWS, mostly as one row of a table."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import jmespath
from botocore.exceptions import ClientError

from cdk_blackwell.local.resources.shapes import UnknownPropertyError, to_shape
from cdk_blackwell.local.world import World

Properties = Mapping[str, Any]


class ResourceError(Exception):
    """A resource could not be made or removed; the text is its status reason."""


@dataclass(frozen=True, kw_only=True)
class Context:
    """Where a resource is being made."""

    world: World
    region: str
    stack_name: str
    stack_id: str
    logical_id: str
    type: str

    @property
    def account(self) -> str:
        """Account id."""
        return self.world.account

    def client(self, service: str) -> Any:
        """A boto3 client against the embedded AWS."""
        return self.world.client(service, self.region)

    def generate_name(self, *, limit: int = 128, lower: bool = False) -> str:
        """``<stack>-<logical id>-<random>`` as CloudFormation makes physical names."""
        letters = string.ascii_uppercase + string.digits
        suffix = "".join(secrets.choice(letters) for _ in range(12))
        name = f"{self.stack_name}-{self.logical_id}"[: limit - 13] + f"-{suffix}"
        return name.lower() if lower else name

    def arn(self, service: str, resource: str) -> str:
        """ARN in this region and account."""
        return f"arn:aws:{service}:{self.region}:{self.account}:{resource}"


@dataclass(frozen=True, kw_only=True)
class Made:
    """A resource that exists now."""

    physical_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


class ResourceType(Protocol):
    """What the engine needs of a type; an update it cannot do in place raises ResourceError."""

    def create(self, context: Context, properties: Properties) -> Made:
        """Make it."""

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        """Change it in place; another physical id means that the old one is to be deleted."""

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        """Remove it."""


Extra = Callable[[Context, Made, Properties], None]

GONE = (
    "NotFound",
    "NoSuch",
    "ResourceNotFound",
    "NonExistent",
    "does not exist",
)


@dataclass(frozen=True, kw_only=True)
class ApiType:
    """A type made by one API call and removed by another."""

    service: str
    create_call: str
    """boto3 method; properties become its input by the service model."""
    physical_id: str
    """JMESPath on ``{"input": ..., "output": ...}``."""
    delete_call: str = ""
    delete_input: Mapping[str, str | list[str]] = field(default_factory=dict)
    """Format strings over ``id``, the attributes and the properties that are text."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Attribute name -> JMESPath as for ``physical_id``, or a format string beginning with ``=``
    over ``id``, ``account``, ``region``."""
    name: str = ""
    """Input member that gets a generated name when the template gives none."""
    name_limit: int = 128
    name_lower: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    """Property -> input member, where they differ in more than case."""
    apart: Sequence[str] = ()
    """Properties that are not the create call's; ``after`` deals with them."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Input members that are always the same."""
    ec2_tags: str = ""
    """Resource type of the TagSpecifications that hold the tags."""
    after: Extra | None = None
    before_delete: Extra | None = None
    put: bool = False
    """The create call overwrites, so it updates too."""

    def create(self, context: Context, properties: Properties) -> Made:
        """Make it."""
        request = self.request(context, properties)
        output = getattr(context.client(self.service), self.create_call)(**request)
        found = {"input": request, "output": output}
        physical_id = str(jmespath.search(self.physical_id, found))
        names = {"id": physical_id, "account": context.account, "region": context.region}
        attributes = {
            name: path[1:].format(**names) if path[0] == "=" else jmespath.search(path, found)
            for name, path in self.attributes.items()
        }
        made = Made(physical_id=physical_id, attributes=attributes)
        if self.after is not None:
            try:
                self.after(context, made, properties)
            except Exception:
                # The engine does not know of it yet, so nobody else would remove it.
                self.delete(context, made, properties)
                raise
        return made

    def request(self, context: Context, properties: Properties) -> dict[str, Any]:
        """Input of the create call."""
        model = context.client(self.service).meta.service_model
        method = context.client(self.service).meta.method_to_api_mapping[self.create_call]
        shape = model.operation_model(method).input_shape
        members = {
            self.rename.get(key, key): value
            for key, value in properties.items()
            if key not in self.apart and not (self.ec2_tags and key == "Tags")
        }
        try:
            request: dict[str, Any] = to_shape({**members, **self.fixed}, shape, context.type)
        except UnknownPropertyError as error:
            raise ResourceError(str(error)) from None
        if self.name and self.name not in request:
            request[self.name] = context.generate_name(limit=self.name_limit, lower=self.name_lower)
        if self.ec2_tags and properties.get("Tags"):
            request["TagSpecifications"] = [
                {"ResourceType": self.ec2_tags, "Tags": properties["Tags"]}
            ]
        return request

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        """Overwrite it under its name, where the API can."""
        if not self.put:
            raise cannot_update(context.type)
        named = dict(properties)
        if self.name:
            named.setdefault(self.name, made.physical_id)
        return self.create(context, named)

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        """Remove it; what is gone already is as good."""
        if self.before_delete is not None:
            self.before_delete(context, made, properties)
        if not self.delete_call:
            return
        names = {
            **{key: value for key, value in properties.items() if isinstance(value, str)},
            **made.attributes,
            "id": made.physical_id,
        }
        request = {
            key: text.format(**names)
            if isinstance(text, str)
            else [item.format(**names) for item in text]
            for key, text in self.delete_input.items()
        }
        try:
            getattr(context.client(self.service), self.delete_call)(**request)
        except ClientError as error:
            if not is_gone(error):
                raise


def is_gone(error: ClientError) -> bool:
    """Whether an API error says that the thing does not exist."""
    return any(word in error.response["Error"]["Code"] + str(error) for word in GONE)


def cannot_update(kind: str) -> ResourceError:
    """The error of a type that has no update in place."""
    return ResourceError(
        f"the embedded AWS cannot update {kind} in place: destroy the stack and deploy it again"
    )

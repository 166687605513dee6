"""What CloudFormation remembers: stacks, their resources, events and change sets."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

REVIEW: Final = "REVIEW_IN_PROGRESS"
STACK_TYPE: Final = "AWS::CloudFormation::Stack"
RETAIN: Final = "Retain"
RETAIN_EXCEPT_ON_CREATE: Final = "RetainExceptOnCreate"


def now() -> datetime:
    """The time, as botocore's serializers take it."""
    return datetime.now(UTC).replace(tzinfo=None)


@dataclass(kw_only=True)
class Resource:
    """One resource of a stack, as it is now."""

    logical_id: str
    type: str
    physical_id: str = ""
    properties: dict[str, Any] = field(default_factory=dict)
    """Resolved, as the resource was made with."""
    attributes: dict[str, Any] = field(default_factory=dict)
    dependencies: set[str] = field(default_factory=set)
    deletion_policy: str = "Delete"
    status: str = "CREATE_IN_PROGRESS"
    reason: str = ""
    changed: datetime = field(default_factory=now)

    def is_kept(self, *, undoing_creation: bool) -> bool:
        """Whether removal from the stack leaves the resource itself alone."""
        if self.deletion_policy == RETAIN_EXCEPT_ON_CREATE:
            return not undoing_creation
        return self.deletion_policy == RETAIN


@dataclass(kw_only=True)
class Request:
    """What a create, an update or a change set asks for."""

    body: str
    template: dict[str, Any]
    parameters: dict[str, str]
    tags: dict[str, str] = field(default_factory=dict)
    disable_rollback: bool = False


@dataclass(kw_only=True)
class Stack:
    """One stack."""

    id: str
    name: str
    status: str
    reason: str = ""
    request: Request
    """Template and parameters in force."""
    created: datetime = field(default_factory=now)
    updated: datetime | None = None
    deleted: datetime | None = None
    resources: dict[str, Resource] = field(default_factory=dict)
    """In order of creation."""
    outputs: list[dict[str, str]] = field(default_factory=list)
    """Frozen when an operation succeeds, so that reading them never resolves anything."""
    exports: dict[str, str] = field(default_factory=dict)
    imports: set[str] = field(default_factory=set)
    events: list[dict[str, Any]] = field(default_factory=list)
    termination_protection: bool = False

    def add_event(
        self,
        status: str,
        reason: str = "",
        resource: Resource | None = None,
    ) -> None:
        """Set the status of the stack, or of one resource, and record it."""
        subject: Stack | Resource = self if resource is None else resource
        subject.status, subject.reason = status, reason
        if resource is not None:
            resource.changed = now()
        event = {
            "StackId": self.id,
            "EventId": str(uuid.uuid4()),
            "StackName": self.name,
            "LogicalResourceId": resource.logical_id if resource else self.name,
            "PhysicalResourceId": resource.physical_id if resource else self.id,
            "ResourceType": resource.type if resource else STACK_TYPE,
            "Timestamp": now(),
            "ResourceStatus": status,
        }
        if reason:
            event["ResourceStatusReason"] = reason
        self.events.append(event)


@dataclass(kw_only=True)
class ChangeSet:
    """One change set; its name is unique only within its stack."""

    id: str
    name: str
    kind: str
    """CREATE or UPDATE."""
    stack: Stack
    request: Request
    description: str
    changes: list[dict[str, Any]]
    status: str
    execution_status: str
    reason: str = ""
    created: datetime = field(default_factory=now)


class Store:
    """Stacks and change sets of one account and region."""

    def __init__(self, account: str, region: str) -> None:
        self.account = account
        self.region = region
        self._stacks: dict[str, Stack] = {}
        self.change_sets: list[ChangeSet] = []

    def arn(self, kind: str, name: str) -> str:
        """A new ARN with a unique last part."""
        prefix = f"arn:aws:cloudformation:{self.region}:{self.account}"
        return f"{prefix}:{kind}/{name}/{uuid.uuid4()}"

    def add(self, name: str, request: Request, status: str) -> Stack:
        """A new stack; the caller has checked that the name is free."""
        stack = Stack(id=self.arn("stack", name), name=name, status=status, request=request)
        self._stacks[stack.id] = stack
        return stack

    def find(self, name_or_id: str) -> Stack | None:
        """By id, deleted ones too; by name, living ones only."""
        if name_or_id in self._stacks:
            return self._stacks[name_or_id]
        return next((stack for stack in self.living() if stack.name == name_or_id), None)

    def living(self) -> Iterator[Stack]:
        """Stacks that were not deleted."""
        return (stack for stack in self.all() if stack.deleted is None)

    def all(self) -> list[Stack]:
        """All stacks, deleted ones too."""
        return list(self._stacks.values())

    def forget(self, stack: Stack) -> None:
        """Drop a stack that never came to life (its change set was deleted)."""
        del self._stacks[stack.id]

    def exports(self) -> dict[str, tuple[Stack, str]]:
        """Exported name -> exporting stack and value."""
        return {
            name: (stack, value) for stack in self.living() for name, value in stack.exports.items()
        }

    def find_change_set(self, name_or_id: str, stack_name: str | None) -> ChangeSet | None:
        """By id, or by name within a stack; the newest first."""
        for change_set in reversed(self.change_sets):
            if change_set.id == name_or_id:
                return change_set
            of_stack = stack_name in (change_set.stack.name, change_set.stack.id)
            if of_stack and change_set.name == name_or_id:
                return change_set
        return None

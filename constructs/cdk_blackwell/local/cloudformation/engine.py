"""Carries a stack from one state to another: create, update, roll back, delete.

Resources are made one after the other in the order of their dependencies and removed in reverse.
Each operation runs in a thread of its own; its progress is the stack's events.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from cdk_blackwell.local.cloudformation.stacks import Request, Resource, Stack, Store, now
from cdk_blackwell.local.cloudformation.template import (
    Scope,
    TemplateError,
    creation_order,
    dependencies,
    references,
    resolve_parameters,
)
from cdk_blackwell.local.resources.resource_type import (
    Context,
    Made,
    ResourceError,
    ResourceType,
)
from cdk_blackwell.local.world import World

_log = logging.getLogger(__name__)

_FAILED = "The following resource(s) failed to"
EXPECTED_ERRORS = (ResourceError, TemplateError, ClientError, BotoCoreError)


class OperationFailedError(Exception):
    """A resource failed; the stack has to go back."""


class Engine:
    """Operations on the stacks of one account and region."""

    def __init__(self, world: World, store: Store, types: Mapping[str, ResourceType]) -> None:
        self._world = world
        self._store = store
        self._types = types

    # --- Operations, each in a thread ------------------------------------------------------------

    def create(self, stack: Stack, request: Request) -> None:
        """Create all resources; roll back when one fails."""
        stack.request = request
        stack.add_event("CREATE_IN_PROGRESS", "User Initiated")
        self._start(self._create, stack)

    def update(self, stack: Stack, request: Request) -> None:
        """Bring the stack to another template or other parameters; roll back when that fails."""
        stack.updated = now()
        stack.add_event("UPDATE_IN_PROGRESS", "User Initiated")
        self._start(self._update, stack, request)

    def delete(self, stack: Stack, retain: set[str]) -> None:
        """Delete all resources but the retained ones."""
        stack.outputs = []
        stack.add_event("DELETE_IN_PROGRESS", "User Initiated")
        self._start(self._delete, stack, retain)

    def _start(self, operation: Callable[..., None], stack: Stack, *arguments: Any) -> None:
        def run() -> None:
            try:
                operation(stack, *arguments)
            except Exception as error:
                # A fault of the engine itself must end the wait of whoever polls the stack.
                _log.exception("operation on stack %s failed", stack.name)
                verb = stack.status.split("_", 1)[0]
                stack.add_event(f"{verb}_FAILED", f"Internal error of the embedded AWS: {error!r}")

        threading.Thread(target=run, name=f"cloudformation-{stack.name}", daemon=True).start()

    # --- Create ----------------------------------------------------------------------------------

    def _create(self, stack: Stack) -> None:
        try:
            scope = self._scope(stack, stack.request)
            for name in creation_order(stack.request.template):
                definition = stack.request.template["Resources"][name]
                if scope.includes(definition):
                    self._create_resource(stack, stack.request, scope, name)
            self._freeze_outputs(stack, stack.request, scope)
        except (TemplateError, OperationFailedError) as error:
            if stack.request.disable_rollback:
                stack.add_event("CREATE_FAILED", str(error))
                return
            stack.add_event("ROLLBACK_IN_PROGRESS", f"{error} Rollback requested by user.")
            failed = self._remove(stack, list(stack.resources.values()), undoing_creation=True)
            stack.add_event("ROLLBACK_FAILED" if failed else "ROLLBACK_COMPLETE", failed)
        else:
            stack.add_event("CREATE_COMPLETE")

    def _create_resource(self, stack: Stack, request: Request, scope: Scope, name: str) -> None:
        definition = request.template["Resources"][name]
        resource = Resource(
            logical_id=name,
            type=definition["Type"],
            dependencies=dependencies(request.template)[name],
            deletion_policy=definition.get("DeletionPolicy", "Delete"),
        )
        stack.resources[name] = resource
        stack.add_event("CREATE_IN_PROGRESS", resource=resource)
        try:
            resource.properties = scope.resolve(definition.get("Properties", {}))
            made = self._type(resource.type).create(
                self._context(stack, resource), resource.properties
            )
        except EXPECTED_ERRORS as error:
            resource.physical_id = getattr(error, "physical_id", "")
            stack.add_event("CREATE_FAILED", _reason(error), resource)
            raise OperationFailedError(
                f"The following resource(s) failed to create: [{name}]."
            ) from None
        _record(resource, made)
        stack.add_event("CREATE_COMPLETE", resource=resource)

    # --- Update ----------------------------------------------------------------------------------

    def _update(self, stack: Stack, request: Request) -> None:
        before = dict(stack.resources)
        undo: list[Callable[[], None]] = []
        replaced: list[Resource] = []
        try:
            scope = self._scope(stack, request)
            wanted = []
            for name in creation_order(request.template):
                definition = request.template["Resources"][name]
                if not scope.includes(definition):
                    continue
                wanted.append(name)
                if name not in before:
                    self._create_resource(stack, request, scope, name)
                else:
                    self._update_resource(stack, request, scope, name, undo, replaced)
            self._freeze_outputs(stack, request, scope)
        except (TemplateError, OperationFailedError) as error:
            self._roll_update_back(stack, error, before, undo)
            return
        stack.request = request
        stack.add_event("UPDATE_COMPLETE_CLEANUP_IN_PROGRESS")
        removed = [stack.resources[name] for name in before if name not in wanted]
        failed = self._remove(stack, [*removed, *replaced])
        stack.add_event("UPDATE_COMPLETE", failed)

    def _update_resource(
        self,
        stack: Stack,
        request: Request,
        scope: Scope,
        name: str,
        undo: list[Callable[[], None]],
        replaced: list[Resource],
    ) -> None:
        definition = request.template["Resources"][name]
        resource = stack.resources[name]
        try:
            if definition["Type"] != resource.type:
                raise ResourceError("Update of resource type is not permitted")
            properties = scope.resolve(definition.get("Properties", {}))
            resource.dependencies = dependencies(request.template)[name]
            resource.deletion_policy = definition.get("DeletionPolicy", "Delete")
            if properties == resource.properties:
                return
            stack.add_event("UPDATE_IN_PROGRESS", resource=resource)
            old = Resource(**vars(resource))
            kind, context = self._type(resource.type), self._context(stack, resource)
            made = kind.update(context, _made(old), old.properties, properties)
        except EXPECTED_ERRORS as error:
            stack.add_event("UPDATE_FAILED", _reason(error), resource)
            raise OperationFailedError(
                f"The following resource(s) failed to update: [{name}]."
            ) from None
        _record(resource, made)
        resource.properties = properties
        stack.add_event("UPDATE_COMPLETE", resource=resource)

        def put_back() -> None:
            stack.add_event("UPDATE_IN_PROGRESS", resource=resource)
            again = kind.update(context, _made(resource), properties, old.properties)
            if again.physical_id != resource.physical_id:
                kind.delete(context, _made(resource), properties)
            _record(resource, again)
            resource.properties = old.properties
            stack.add_event("UPDATE_COMPLETE", resource=resource)

        undo.append(put_back)
        if made.physical_id != old.physical_id:
            replaced.append(old)

    def _roll_update_back(
        self,
        stack: Stack,
        error: Exception,
        before: Mapping[str, Resource],
        undo: list[Callable[[], None]],
    ) -> None:
        stack.add_event("UPDATE_ROLLBACK_IN_PROGRESS", str(error))
        failed = ""
        for put_back in reversed(undo):
            try:
                put_back()
            except EXPECTED_ERRORS as problem:
                failed = _reason(problem)
        added = [resource for name, resource in stack.resources.items() if name not in before]
        failed = self._remove(stack, added, undoing_creation=True) or failed
        stack.add_event("UPDATE_ROLLBACK_FAILED" if failed else "UPDATE_ROLLBACK_COMPLETE", failed)

    # --- Delete ----------------------------------------------------------------------------------

    def _delete(self, stack: Stack, retain: set[str]) -> None:
        failed = self._remove(stack, list(stack.resources.values()), retain=retain)
        if failed:
            stack.add_event("DELETE_FAILED", failed)
            return
        stack.exports, stack.imports = {}, set()
        stack.deleted = now()
        stack.add_event("DELETE_COMPLETE")
        self._store.change_sets = [
            change_set for change_set in self._store.change_sets if change_set.stack is not stack
        ]

    def _remove(
        self,
        stack: Stack,
        resources: list[Resource],
        *,
        retain: Collection[str] = (),
        undoing_creation: bool = False,
    ) -> str:
        """Delete in reverse order; returns what failed, or an empty text.

        What a failed resource depends on stays, everything else still goes.
        """
        failed: list[str] = []
        kept: set[str] = set()
        for resource in reversed(resources):
            name = resource.logical_id
            current = stack.resources.get(name) is resource
            if current and name in kept:
                kept |= resource.dependencies
                continue
            kept_by_policy = resource.is_kept(undoing_creation=undoing_creation)
            if name in retain or (kept_by_policy and resource.physical_id):
                stack.add_event("DELETE_SKIPPED", resource=resource)
            elif resource.physical_id and not self._delete_resource(stack, resource):
                failed.append(name)
                kept |= resource.dependencies
                continue
            if current:
                del stack.resources[name]
        if not failed:
            return ""
        return f"{_FAILED} delete: [{', '.join(failed)}]."

    def _delete_resource(self, stack: Stack, resource: Resource) -> bool:
        stack.add_event("DELETE_IN_PROGRESS", resource=resource)
        try:
            self._type(resource.type).delete(
                self._context(stack, resource), _made(resource), resource.properties
            )
        except EXPECTED_ERRORS as error:
            stack.add_event("DELETE_FAILED", _reason(error), resource)
            return False
        stack.add_event("DELETE_COMPLETE", resource=resource)
        return True

    # --- Names -----------------------------------------------------------------------------------

    def _type(self, name: str) -> ResourceType:
        if name in self._types:
            return self._types[name]
        if name.startswith("Custom::"):
            return self._types["AWS::CloudFormation::CustomResource"]
        raise ResourceError(f"Unrecognized resource type: the embedded AWS does not know {name}")

    def _context(self, stack: Stack, resource: Resource) -> Context:
        return Context(
            world=self._world,
            region=self._store.region,
            stack_name=stack.name,
            stack_id=stack.id,
            logical_id=resource.logical_id,
            type=resource.type,
        )

    def _scope(self, stack: Stack, request: Request) -> Scope:
        region = self._store.region
        parameters = resolve_parameters(request.template, request.parameters, self._read_ssm)
        names = set(references(request.template.get("Resources", {})))
        known = {*request.template["Resources"], *parameters}
        unknown = sorted(name for name in names - known if not name.startswith("AWS::"))
        if unknown:
            raise TemplateError(
                f"Template error: Unresolved resource dependencies [{', '.join(unknown)}]"
            )
        return Scope(
            template=request.template,
            values={
                **parameters,
                "AWS::AccountId": self._store.account,
                "AWS::Region": region,
                "AWS::Partition": "aws",
                "AWS::URLSuffix": "amazonaws.com",
                "AWS::StackName": stack.name,
                "AWS::StackId": stack.id,
                "AWS::NotificationARNs": [],
            },
            physical_id=lambda name: stack.resources[name].physical_id,
            attribute=lambda name, attribute: stack.resources[name].attributes[attribute],
            import_value=lambda name: self._import(stack, name),
            zones=self._zones,
        )

    def _zones(self, region: str) -> list[str]:
        answer = self._world.client("ec2", region).describe_availability_zones()
        return sorted(zone["ZoneName"] for zone in answer["AvailabilityZones"])

    def _read_ssm(self, name: str) -> str:
        try:
            answer = self._world.client("ssm", self._store.region).get_parameter(Name=name)
        except ClientError as error:
            raise TemplateError(f"Unable to fetch parameters [{name}]: {error}") from None
        return str(answer["Parameter"]["Value"])

    def _import(self, stack: Stack, name: str) -> str:
        exports = self._store.exports()
        if name not in exports:
            raise TemplateError(f"No export named {name} found.")
        stack.imports.add(name)
        return exports[name][1]

    def _freeze_outputs(self, stack: Stack, request: Request, scope: Scope) -> None:
        outputs, exports = [], {}
        for key, declared in (request.template.get("Outputs") or {}).items():
            if not scope.includes(declared):
                continue
            output = {"OutputKey": key, "OutputValue": str(scope.resolve(declared["Value"]))}
            if "Description" in declared:
                output["Description"] = declared["Description"]
            if "Export" in declared:
                name = str(scope.resolve(declared["Export"]["Name"]))
                owner = self._store.exports().get(name)
                if owner and owner[0] is not stack:
                    raise TemplateError(
                        f"Export with name {name} is already exported by stack {owner[0].name}"
                    )
                exports[name] = output["ExportName"] = output["OutputValue"]
                output["ExportName"] = name
            outputs.append(output)
        stack.outputs, stack.exports = outputs, exports


def _made(resource: Resource) -> Made:
    return Made(physical_id=resource.physical_id, attributes=resource.attributes)


def _record(resource: Resource, made: Made) -> None:
    resource.physical_id = made.physical_id
    resource.attributes = dict(made.attributes)


def _reason(error: Exception) -> str:
    if isinstance(error, ClientError):
        detail = error.response["Error"]
        return f"{detail.get('Message', error)} ({error.operation_name}: {detail.get('Code')})"
    return str(error)

"""The CloudFormation API: what the CDK command line and boto3 call."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NoReturn
from urllib.parse import unquote, urlparse

from moto.cloudformation.exceptions import CloudFormationError
from moto.core.responses import ActionResult, BaseResponse, EmptyResult

from cdk_blackwell.local.cloudformation.changesets import (
    NO_CHANGES,
    describe_change_set,
    list_changes,
)
from cdk_blackwell.local.cloudformation.engine import Engine
from cdk_blackwell.local.cloudformation.stacks import (
    REVIEW,
    ChangeSet,
    Request,
    Resource,
    Stack,
    Store,
)
from cdk_blackwell.local.cloudformation.template import (
    TemplateError,
    creation_order,
    read_template,
)
from cdk_blackwell.local.world import World

DELETABLE_NOT = ("CREATE_IN_PROGRESS", "UPDATE_IN_PROGRESS", "DELETE_IN_PROGRESS")


def _refuse(message: str, code: str = "ValidationError") -> NoReturn:
    # A class of moto's own module: moto finds the service of an error by its module.
    error = CloudFormationError(message)
    error.code = code
    raise error


class CloudFormationApi(BaseResponse):  # type: ignore[misc]
    """One method for each API action, called by moto's dispatcher; ``configure`` comes first."""

    world: ClassVar[World]
    engine_for: ClassVar[Callable[[str], tuple[Store, Engine]]]

    def __init__(self) -> None:
        super().__init__(service_name="cloudformation")
        self.automated_parameter_parsing = True

    @property
    def _store(self) -> Store:
        return type(self).engine_for(self.region)[0]

    @property
    def _engine(self) -> Engine:
        return type(self).engine_for(self.region)[1]

    def _given(self, name: str, default: Any = None) -> Any:
        value = self._get_param(name)
        return default if value is None else value

    # --- Change sets -----------------------------------------------------------------------------

    def create_change_set(self) -> ActionResult:
        """CreateChangeSet."""
        kind = self._given("ChangeSetType", "UPDATE")
        if kind not in ("CREATE", "UPDATE"):
            _refuse(f"ChangeSetType {kind} is not supported here; use CREATE or UPDATE")
        stack_name, name = self._given("StackName"), self._given("ChangeSetName")
        stack = self._store.find(stack_name)
        if stack is not None and stack.status != REVIEW and kind == "CREATE":
            _refuse(
                f"Stack [{stack_name}] already exists and cannot be created again"
                " with the changeSet"
            )
        if kind == "UPDATE" and (stack is None or stack.deleted):
            _refuse(f"Stack [{stack_name}] does not exist")
        request = self._request(stack)
        if stack is None or stack.deleted:
            stack = self._store.add(stack_name, request, REVIEW)
            stack.add_event(REVIEW, "User Initiated")
        elif kind == "UPDATE":
            self._check_updatable(stack)
        changes = list_changes(stack, request)
        empty = kind == "UPDATE" and not changes
        change_set = ChangeSet(
            id=self._store.arn("changeSet", name),
            name=name,
            kind=kind,
            stack=stack,
            request=request,
            description=self._given("Description", ""),
            changes=changes,
            status="FAILED" if empty else "CREATE_COMPLETE",
            execution_status="UNAVAILABLE" if empty else "AVAILABLE",
            reason=NO_CHANGES if empty else "",
        )
        self._store.change_sets.append(change_set)
        return ActionResult({"Id": change_set.id, "StackId": stack.id})

    def describe_change_set(self) -> ActionResult:
        """DescribeChangeSet."""
        return ActionResult(describe_change_set(self._find_change_set()))

    def list_change_sets(self) -> ActionResult:
        """ListChangeSets."""
        stack = self._find()
        found = [one for one in self._store.change_sets if one.stack is stack]
        return ActionResult({"Summaries": [describe_change_set(one) for one in found]})

    def delete_change_set(self) -> ActionResult:
        """DeleteChangeSet; as on AWS, one that does not exist is no error."""
        change_set = self._store.find_change_set(
            self._given("ChangeSetName"), self._given("StackName")
        )
        if change_set is not None:
            self._store.change_sets.remove(change_set)
        return EmptyResult()

    def execute_change_set(self) -> ActionResult:
        """ExecuteChangeSet."""
        change_set = self._find_change_set()
        if change_set.execution_status != "AVAILABLE":
            _refuse(
                f"ChangeSet [{change_set.name}] cannot be executed in its current status"
                f" [{change_set.status}]",
                "InvalidChangeSetStatus",
            )
        change_set.execution_status = "EXECUTE_COMPLETE"
        change_set.request.disable_rollback = bool(self._given("DisableRollback", False))
        start = self._engine.create if change_set.kind == "CREATE" else self._engine.update
        start(change_set.stack, change_set.request)
        return EmptyResult()

    # --- Stacks ----------------------------------------------------------------------------------

    def create_stack(self) -> ActionResult:
        """CreateStack."""
        name = self._given("StackName")
        if self._store.find(name) is not None:
            _refuse(f"Stack [{name}] already exists", "AlreadyExistsException")
        request = self._request(None)
        request.disable_rollback = bool(self._given("DisableRollback", False))
        stack = self._store.add(name, request, "CREATE_IN_PROGRESS")
        self._engine.create(stack, request)
        return ActionResult({"StackId": stack.id})

    def update_stack(self) -> ActionResult:
        """UpdateStack."""
        stack = self._find()
        self._check_updatable(stack)
        request = self._request(stack)
        if not list_changes(stack, request):
            _refuse("No updates are to be performed.")
        self._engine.update(stack, request)
        return ActionResult({"StackId": stack.id})

    def delete_stack(self) -> ActionResult:
        """DeleteStack; as on AWS, one that does not exist is no error."""
        stack = self._store.find(self._given("StackName"))
        if stack is None or stack.deleted:
            return EmptyResult()
        if stack.termination_protection:
            _refuse(f"Stack [{stack.id}] cannot be deleted while TerminationProtection is enabled")
        if stack.status in DELETABLE_NOT:
            return EmptyResult()
        for name in stack.exports:
            users = [other.name for other in self._store.living() if name in other.imports]
            if users:
                stack.add_event(
                    "DELETE_FAILED",
                    f"Delete canceled. Cannot delete export {name} as it is in use by"
                    f" {', '.join(users)}.",
                )
                return EmptyResult()
        self._engine.delete(stack, set(self._given("RetainResources", [])))
        return EmptyResult()

    def update_termination_protection(self) -> ActionResult:
        """UpdateTerminationProtection."""
        stack = self._find()
        stack.termination_protection = bool(self._given("EnableTerminationProtection"))
        return ActionResult({"StackId": stack.id})

    # --- Reading ---------------------------------------------------------------------------------

    def describe_stacks(self) -> ActionResult:
        """DescribeStacks."""
        stacks = [self._find()] if self._given("StackName") else list(self._store.living())
        return ActionResult({"Stacks": [_describe(stack) for stack in stacks]})

    def list_stacks(self) -> ActionResult:
        """ListStacks."""
        wanted = self._given("StackStatusFilter", [])
        stacks = [one for one in self._store.all() if not wanted or one.status in wanted]
        return ActionResult({"StackSummaries": [_describe(stack) for stack in stacks]})

    def describe_stack_events(self) -> ActionResult:
        """DescribeStackEvents, newest first."""
        return ActionResult({"StackEvents": list(reversed(self._find().events))})

    def describe_events(self) -> ActionResult:
        """DescribeEvents: the same events under their newer name."""
        change_set_name = self._given("ChangeSetName")
        stack = self._find_change_set().stack if change_set_name else self._find()
        events = [{**event, "EventType": "STACK_EVENT"} for event in reversed(stack.events)]
        if (self._given("Filters") or {}).get("FailedEvents"):
            events = [event for event in events if event["ResourceStatus"].endswith("_FAILED")]
        return ActionResult({"OperationEvents": events})

    def list_stack_resources(self) -> ActionResult:
        """ListStackResources."""
        resources = self._find().resources.values()
        return ActionResult({"StackResourceSummaries": [_summary(one) for one in resources]})

    def describe_stack_resources(self) -> ActionResult:
        """DescribeStackResources."""
        stack, name = self._find(), self._given("LogicalResourceId")
        resources = [one for one in stack.resources.values() if name in (None, one.logical_id)]
        return ActionResult({"StackResources": [_detail(stack, one) for one in resources]})

    def describe_stack_resource(self) -> ActionResult:
        """DescribeStackResource."""
        stack, name = self._find(), self._given("LogicalResourceId")
        if name not in stack.resources:
            _refuse(f"Resource {name} does not exist for stack {stack.name}")
        return ActionResult({"StackResourceDetail": _detail(stack, stack.resources[name])})

    def list_exports(self) -> ActionResult:
        """ListExports."""
        exports = [
            {"ExportingStackId": stack.id, "Name": name, "Value": value}
            for name, (stack, value) in self._store.exports().items()
        ]
        return ActionResult({"Exports": exports})

    def list_imports(self) -> ActionResult:
        """ListImports."""
        name = self._given("ExportName")
        users = [stack.name for stack in self._store.living() if name in stack.imports]
        return ActionResult({"Imports": users})

    def get_template(self) -> ActionResult:
        """GetTemplate, as it was given."""
        stack = self._find()
        body = "" if stack.status == REVIEW else stack.request.body
        return ActionResult({"TemplateBody": body, "StagesAvailable": ["Original", "Processed"]})

    def get_template_summary(self) -> ActionResult:
        """GetTemplateSummary."""
        stack = self._find() if self._given("StackName") else None
        template = stack.request.template if stack else self._request(None).template
        parameters = [
            {
                "ParameterKey": name,
                "DefaultValue": declared.get("Default"),
                "ParameterType": declared.get("Type", "String"),
                "NoEcho": declared.get("NoEcho", False),
            }
            for name, declared in template.get("Parameters", {}).items()
        ]
        types = sorted({one["Type"] for one in template["Resources"].values()})
        return ActionResult({"Parameters": parameters, "ResourceTypes": types})

    def validate_template(self) -> ActionResult:
        """ValidateTemplate."""
        return ActionResult({"Description": self._request(None).template.get("Description", "")})

    # --- Helpers ---------------------------------------------------------------------------------

    def _find(self) -> Stack:
        name = self._given("StackName")
        stack = self._store.find(name)
        if stack is None:
            _refuse(f"Stack with id {name} does not exist")
        return stack

    def _find_change_set(self) -> ChangeSet:
        name = self._given("ChangeSetName")
        change_set = self._store.find_change_set(name, self._given("StackName"))
        if change_set is None:
            _refuse(f"ChangeSet [{name}] does not exist", "ChangeSetNotFound")
        return change_set

    def _check_updatable(self, stack: Stack) -> None:
        if stack.status not in ("CREATE_COMPLETE", "UPDATE_COMPLETE", "UPDATE_ROLLBACK_COMPLETE"):
            _refuse(f"Stack:{stack.id} is in {stack.status} state and can not be updated.")

    def _request(self, stack: Stack | None) -> Request:
        """Template and parameters of this call; ``stack`` supplies the previous values."""
        if self._given("UsePreviousTemplate", False) and stack is not None:
            body = stack.request.body
        else:
            body = self._given("TemplateBody") or self._fetch(self._given("TemplateURL"))
        previous = stack.request.parameters if stack else {}
        parameters = {}
        for given in self._given("Parameters", []):
            name = given["ParameterKey"]
            if not given.get("UsePreviousValue"):
                parameters[name] = given["ParameterValue"]
            elif name in previous:
                parameters[name] = previous[name]
        try:
            template = read_template(body)
            creation_order(template)
        except TemplateError as error:
            _refuse(str(error))
        tags = {tag["Key"]: tag["Value"] for tag in self._given("Tags", [])}
        return Request(body=body, template=template, parameters=parameters, tags=tags)

    def _fetch(self, url: str | None) -> str:
        if not url:
            _refuse("Either Template URL or Template Body must be specified.")
        bucket, key = _bucket_and_key(url)
        answer = type(self).world.client("s3", self.region).get_object(Bucket=bucket, Key=key)
        return str(answer["Body"].read().decode())


def _bucket_and_key(url: str) -> tuple[str, str]:
    """Of ``http://localhost:5000/bucket/key`` and of ``https://bucket.s3.region.../key``."""
    parsed = urlparse(url)
    path, host = unquote(parsed.path).lstrip("/"), parsed.hostname or ""
    first = host.split(".", 1)[0]
    if first in ("localhost", "s3") or first.startswith("s3-"):
        bucket, _, key = path.partition("/")
        return bucket, key
    return first, path


def _describe(stack: Stack) -> dict[str, Any]:
    return {
        "StackId": stack.id,
        "StackName": stack.name,
        "Description": stack.request.template.get("Description"),
        "CreationTime": stack.created,
        "LastUpdatedTime": stack.updated,
        "DeletionTime": stack.deleted,
        "StackStatus": stack.status,
        "StackStatusReason": stack.reason or None,
        "DisableRollback": stack.request.disable_rollback,
        "EnableTerminationProtection": stack.termination_protection,
        "Parameters": _pairs(stack.request.parameters, "ParameterKey", "ParameterValue"),
        "Tags": _pairs(stack.request.tags, "Key", "Value"),
        "Outputs": stack.outputs,
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
        "NotificationARNs": [],
        "DriftInformation": {"StackDriftStatus": "NOT_CHECKED"},
    }


def _pairs(values: Mapping[str, str], key: str, value: str) -> list[dict[str, str]]:
    return [{key: name, value: text} for name, text in values.items()]


def _summary(resource: Resource) -> dict[str, Any]:
    return {
        "LogicalResourceId": resource.logical_id,
        "PhysicalResourceId": resource.physical_id,
        "ResourceType": resource.type,
        "ResourceStatus": resource.status,
        "ResourceStatusReason": resource.reason or None,
        "LastUpdatedTimestamp": resource.changed,
    }


def _detail(stack: Stack, resource: Resource) -> dict[str, Any]:
    return {
        **_summary(resource),
        "StackName": stack.name,
        "StackId": stack.id,
        "Timestamp": resource.changed,
        "Metadata": json.dumps(
            stack.request.template["Resources"].get(resource.logical_id, {}).get("Metadata", {})
        ),
    }

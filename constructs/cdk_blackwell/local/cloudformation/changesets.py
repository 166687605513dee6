"""What a change set says."""

from __future__ import annotations

from typing import Any, Final

from cdk_blackwell.local.cloudformation.stacks import REVIEW, ChangeSet, Request, Stack

NO_CHANGES: Final = (
    "The submitted information didn't contain changes. "
    "Submit different information to create a change set."
)


def list_changes(stack: Stack, request: Request) -> list[dict[str, Any]]:
    """Resources that the request would add, modify or remove, judged by the templates.

    A changed parameter, tag or output modifies the stack itself; it is listed as such, because an
    empty list means that there is nothing to do.
    """
    old = {} if stack.status == REVIEW else stack.request.template["Resources"]
    new = request.template["Resources"]
    changes = []
    for name in [*new, *(name for name in old if name not in new)]:
        if name not in old:
            action = "Add"
        elif name not in new:
            action = "Remove"
        elif old[name] != new[name]:
            action = "Modify"
        else:
            continue
        resource = stack.resources.get(name)
        changes.append(
            {
                "Type": "Resource",
                "ResourceChange": {
                    "Action": action,
                    "LogicalResourceId": name,
                    "PhysicalResourceId": resource.physical_id if resource else None,
                    "ResourceType": (new.get(name) or old[name])["Type"],
                    "Scope": ["Properties"] if action == "Modify" else [],
                    "Details": [],
                },
            }
        )
    whole = (request.template, request.parameters, request.tags)
    before = (stack.request.template, stack.request.parameters, stack.request.tags)
    if not changes and whole != before:
        changes.append(
            {
                "Type": "Resource",
                "ResourceChange": {
                    "Action": "Modify",
                    "LogicalResourceId": stack.name,
                    "PhysicalResourceId": stack.id,
                    "ResourceType": "AWS::CloudFormation::Stack",
                    "Scope": ["Properties"],
                    "Details": [],
                },
            }
        )
    return changes


def describe_change_set(change_set: ChangeSet) -> dict[str, Any]:
    """DescribeChangeSet's answer."""
    parameters = change_set.request.parameters.items()
    return {
        "ChangeSetId": change_set.id,
        "ChangeSetName": change_set.name,
        "StackId": change_set.stack.id,
        "StackName": change_set.stack.name,
        "Description": change_set.description or None,
        "CreationTime": change_set.created,
        "Status": change_set.status,
        "StatusReason": change_set.reason or None,
        "ExecutionStatus": change_set.execution_status,
        "Changes": change_set.changes,
        "Parameters": [{"ParameterKey": key, "ParameterValue": value} for key, value in parameters],
        "Tags": [{"Key": key, "Value": value} for key, value in change_set.request.tags.items()],
        "Capabilities": ["CAPABILITY_IAM", "CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"],
        "NotificationARNs": [],
    }

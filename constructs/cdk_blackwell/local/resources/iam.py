"""IAM resource types."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from botocore.exceptions import ClientError

from cdk_blackwell.local.resources.resource_type import (
    ApiType,
    Context,
    Made,
    Properties,
    ResourceType,
    cannot_update,
    is_gone,
)

_PRINCIPALS: Final = {"Roles": "role", "Users": "user", "Groups": "group"}


def _after_role(context: Context, made: Made, properties: Properties) -> None:
    iam = context.client("iam")
    for arn in properties.get("ManagedPolicyArns", []):
        iam.attach_role_policy(RoleName=made.physical_id, PolicyArn=arn)
    for policy in properties.get("Policies", []):
        iam.put_role_policy(
            RoleName=made.physical_id,
            PolicyName=policy["PolicyName"],
            PolicyDocument=json.dumps(policy["PolicyDocument"]),
        )


def _empty_role(context: Context, made: Made, properties: Properties) -> None:
    iam = context.client("iam")
    role = {"RoleName": made.physical_id}
    try:
        for policy in iam.list_attached_role_policies(**role)["AttachedPolicies"]:
            iam.detach_role_policy(**role, PolicyArn=policy["PolicyArn"])
        # Inline policies of AWS::IAM::Policy go before their role, by dependency.
        for policy in properties.get("Policies", []):
            iam.delete_role_policy(**role, PolicyName=policy["PolicyName"])
    except ClientError as error:
        if not is_gone(error):
            raise


class _Role(ApiType):
    """A role's policies can be changed in place, its name and path cannot."""

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        if any(old.get(key) != properties.get(key) for key in ("RoleName", "Path", "Tags")):
            raise cannot_update(f"{context.type} (RoleName, Path, Tags)")
        iam = context.client("iam")
        _empty_role(context, made, old)
        iam.update_assume_role_policy(
            RoleName=made.physical_id,
            PolicyDocument=json.dumps(properties["AssumeRolePolicyDocument"]),
        )
        iam.update_role(
            RoleName=made.physical_id,
            Description=properties.get("Description", ""),
            MaxSessionDuration=int(properties.get("MaxSessionDuration", 3600)),
        )
        _after_role(context, made, properties)
        return made


class _InlinePolicy:
    """AWS::IAM::Policy: one document put into each of its roles, users and groups."""

    def create(self, context: Context, properties: Properties) -> Made:
        for principal, name in _principals(properties):
            getattr(context.client("iam"), f"put_{principal}_policy")(
                **{f"{principal.title()}Name": name},
                PolicyName=properties["PolicyName"],
                PolicyDocument=json.dumps(properties["PolicyDocument"]),
            )
        return Made(physical_id=properties["PolicyName"], attributes={"Id": context.logical_id})

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        self.delete(context, made, old)
        return self.create(context, properties)

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        for principal, name in _principals(properties):
            try:
                getattr(context.client("iam"), f"delete_{principal}_policy")(
                    **{f"{principal.title()}Name": name}, PolicyName=properties["PolicyName"]
                )
            except ClientError as error:
                if not is_gone(error):
                    raise


def _principals(properties: Properties) -> list[tuple[str, str]]:
    return [
        (principal, name)
        for key, principal in _PRINCIPALS.items()
        for name in properties.get(key, [])
    ]


def _after_managed_policy(context: Context, made: Made, properties: Properties) -> None:
    for principal, name in _principals(properties):
        getattr(context.client("iam"), f"attach_{principal}_policy")(
            **{f"{principal.title()}Name": name}, PolicyArn=made.physical_id
        )


def _detach_managed_policy(context: Context, made: Made, properties: Properties) -> None:
    for principal, name in _principals(properties):
        try:
            getattr(context.client("iam"), f"detach_{principal}_policy")(
                **{f"{principal.title()}Name": name}, PolicyArn=made.physical_id
            )
        except ClientError as error:
            if not is_gone(error):
                raise


_POLICY_APART: Final[tuple[Any, ...]] = tuple(_PRINCIPALS)

TYPES: Final[Mapping[str, ResourceType]] = {
    "AWS::IAM::Role": _Role(
        service="iam",
        create_call="create_role",
        physical_id="output.Role.RoleName",
        attributes={"Arn": "output.Role.Arn", "RoleId": "output.Role.RoleId"},
        name="RoleName",
        name_limit=64,
        apart=("ManagedPolicyArns", "Policies"),
        after=_after_role,
        before_delete=_empty_role,
        delete_call="delete_role",
        delete_input={"RoleName": "{id}"},
    ),
    "AWS::IAM::Policy": _InlinePolicy(),
    "AWS::IAM::ManagedPolicy": ApiType(
        service="iam",
        create_call="create_policy",
        physical_id="output.Policy.Arn",
        attributes={"PolicyArn": "output.Policy.Arn", "PolicyId": "output.Policy.PolicyId"},
        name="PolicyName",
        rename={"ManagedPolicyName": "PolicyName"},
        apart=_POLICY_APART,
        after=_after_managed_policy,
        before_delete=_detach_managed_policy,
        delete_call="delete_policy",
        delete_input={"PolicyArn": "{id}"},
    ),
}

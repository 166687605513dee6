"""KMS, DynamoDB, SSM and ECR resource types."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from cdk_blackwell.local.resources.resource_type import (
    ApiType,
    Context,
    Made,
    Properties,
    ResourceError,
    ResourceType,
    cannot_update,
)

_KMS_DELETE_DAYS: Final = 30


def _after_key(context: Context, made: Made, properties: Properties) -> None:
    if str(properties.get("EnableKeyRotation", "")).lower() == "true":
        context.client("kms").enable_key_rotation(KeyId=made.physical_id)


class _Key(ApiType):
    """A key's policy can be changed; its deletion is only scheduled, as on AWS."""

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        if {**old, "KeyPolicy": 0} != {**properties, "KeyPolicy": 0}:
            raise cannot_update(f"{context.type} (other than KeyPolicy)")
        policy = self.request(context, properties)["Policy"]
        context.client("kms").put_key_policy(
            KeyId=made.physical_id, PolicyName="default", Policy=policy
        )
        return made

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        days = int(properties.get("PendingWindowInDays", _KMS_DELETE_DAYS))
        context.client("kms").schedule_key_deletion(
            KeyId=made.physical_id, PendingWindowInDays=days
        )


def _after_table(context: Context, made: Made, properties: Properties) -> None:
    dynamodb = context.client("dynamodb")
    recovery = properties.get("PointInTimeRecoverySpecification")
    if recovery:
        enabled = str(recovery.get("PointInTimeRecoveryEnabled")).lower() == "true"
        dynamodb.update_continuous_backups(
            TableName=made.physical_id,
            PointInTimeRecoverySpecification={"PointInTimeRecoveryEnabled": enabled},
        )
    lifetime = properties.get("TimeToLiveSpecification")
    if lifetime:
        dynamodb.update_time_to_live(
            TableName=made.physical_id,
            TimeToLiveSpecification={
                "AttributeName": lifetime["AttributeName"],
                "Enabled": str(lifetime["Enabled"]).lower() == "true",
            },
        )


_TABLE: Final[Mapping[str, Any]] = {
    "service": "dynamodb",
    "create_call": "create_table",
    "physical_id": "output.TableDescription.TableName",
    "attributes": {
        "Arn": "output.TableDescription.TableArn",
        "TableId": "output.TableDescription.TableId",
        "StreamArn": "output.TableDescription.LatestStreamArn",
    },
    "name": "TableName",
    "after": _after_table,
    "delete_call": "delete_table",
    "delete_input": {"TableName": "{id}"},
}


class _Table(ApiType):
    """``SSESpecification`` has another member name than the API."""

    def create(self, context: Context, properties: Properties) -> Made:
        values = dict(properties)
        encryption = dict(values.get("SSESpecification", {}))
        if encryption:
            encryption["Enabled"] = encryption.pop("SSEEnabled", True)
            values["SSESpecification"] = encryption
        return super().create(context, values)


class _GlobalTable(_Table):
    """A global table with its one replica in this region is a table here."""

    def create(self, context: Context, properties: Properties) -> Made:
        replicas = properties.get("Replicas", [])
        if [replica.get("Region") for replica in replicas] != [context.region]:
            raise ResourceError(
                "the embedded AWS is one region: AWS::DynamoDB::GlobalTable needs exactly one"
                f" replica, in {context.region}"
            )
        here = {key: value for key, value in replicas[0].items() if key != "Region"}
        values = {**properties, **here}
        del values["Replicas"]
        return super().create(context, values)


_TABLE_APART: Final = ("PointInTimeRecoverySpecification", "TimeToLiveSpecification")


def _after_repository(context: Context, made: Made, properties: Properties) -> None:
    if "LifecyclePolicy" in properties:
        context.client("ecr").put_lifecycle_policy(
            repositoryName=made.physical_id,
            lifecyclePolicyText=properties["LifecyclePolicy"]["LifecyclePolicyText"],
        )
    if "RepositoryPolicyText" in properties:
        request = ApiType(
            service="ecr", create_call="set_repository_policy", physical_id="input.repositoryName"
        ).request(
            context,
            {
                "repositoryName": made.physical_id,
                "policyText": properties["RepositoryPolicyText"],
            },
        )
        context.client("ecr").set_repository_policy(**request)


TYPES: Final[Mapping[str, ResourceType]] = {
    "AWS::KMS::Key": _Key(
        service="kms",
        create_call="create_key",
        physical_id="output.KeyMetadata.KeyId",
        attributes={"Arn": "output.KeyMetadata.Arn", "KeyId": "output.KeyMetadata.KeyId"},
        rename={"KeyPolicy": "Policy"},
        apart=("EnableKeyRotation", "PendingWindowInDays", "Enabled"),
        after=_after_key,
    ),
    "AWS::KMS::Alias": ApiType(
        service="kms",
        create_call="create_alias",
        physical_id="input.AliasName",
        attributes={"AliasArn": "=arn:aws:kms:{region}:{account}:{id}"},
        delete_call="delete_alias",
        delete_input={"AliasName": "{id}"},
    ),
    "AWS::DynamoDB::Table": _Table(**_TABLE, apart=_TABLE_APART),
    "AWS::DynamoDB::GlobalTable": _GlobalTable(**_TABLE, apart=_TABLE_APART),
    "AWS::SSM::Parameter": ApiType(
        service="ssm",
        create_call="put_parameter",
        physical_id="input.Name",
        attributes={"Type": "input.Type", "Value": "input.Value"},
        name="Name",
        fixed={"Overwrite": True},
        put=True,
        delete_call="delete_parameter",
        delete_input={"Name": "{id}"},
    ),
    "AWS::ECR::Repository": ApiType(
        service="ecr",
        create_call="create_repository",
        physical_id="output.repository.repositoryName",
        attributes={
            "Arn": "output.repository.repositoryArn",
            "RepositoryUri": "output.repository.repositoryUri",
        },
        name="repositoryName",
        name_lower=True,
        apart=("LifecyclePolicy", "RepositoryPolicyText"),
        after=_after_repository,
        delete_call="delete_repository",
        delete_input={"repositoryName": "{id}"},
    ),
}

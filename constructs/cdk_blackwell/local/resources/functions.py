"""Lambda resource types, and CDK's own metadata."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from typing import Any, Final

from cdk_blackwell.local.lambda_runtime import FUNCTION_SETTINGS, FunctionSettings
from cdk_blackwell.local.resources.resource_type import (
    ApiType,
    Context,
    Made,
    Properties,
    ResourceType,
    cannot_update,
)

_CODE: Final = ("S3Bucket", "S3Key", "S3ObjectVersion", "ZipFile")


def _remember(context: Context, made: Made, properties: Properties) -> None:
    """What moto drops: the log group and the dead-letter queue."""
    FUNCTION_SETTINGS[made.attributes["Arn"]] = FunctionSettings(
        log_group=(properties.get("LoggingConfig") or {}).get("LogGroup"),
        dead_letter_arn=(properties.get("DeadLetterConfig") or {}).get("TargetArn"),
    )
    reserved = properties.get("ReservedConcurrentExecutions")
    if reserved is not None:
        context.client("lambda").put_function_concurrency(
            FunctionName=made.physical_id, ReservedConcurrentExecutions=int(reserved)
        )


class _Function(ApiType):
    """Code and configuration change in place, everything else is another function."""

    def request(self, context: Context, properties: Properties) -> dict[str, Any]:
        """In a template ``ZipFile`` is source text; the API wants an archive with it."""
        request = super().request(context, properties)
        source = request["Code"].get("ZipFile")
        if source is not None:
            archive = io.BytesIO()
            with zipfile.ZipFile(archive, "w") as zipped:
                # A fixed time: the same source is the same code.
                zipped.writestr(zipfile.ZipInfo("index.py", (1980, 1, 1, 0, 0, 0)), source)
            request["Code"]["ZipFile"] = archive.getvalue()
        return request

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        for key in ("FunctionName", "Tags", "Architectures", "PackageType"):
            if old.get(key) != properties.get(key):
                raise cannot_update(f"{context.type} ({key})")
        client = context.client("lambda")
        request = self.request(context, {**properties, "FunctionName": made.physical_id})
        code = request.pop("Code")
        if old["Code"] != properties["Code"]:
            client.update_function_code(
                FunctionName=made.physical_id,
                **{key: value for key, value in code.items() if key in _CODE},
            )
        for key in ("Tags", "Architectures", "PackageType", "Publish"):
            request.pop(key, None)
        client.update_function_configuration(**request)
        _remember(context, made, properties)
        return made


class _InvokeConfig:
    """AWS::Lambda::EventInvokeConfig."""

    def create(self, context: Context, properties: Properties) -> Made:
        context.client("lambda").put_function_event_invoke_config(**self._request(properties))
        name, qualifier = properties["FunctionName"], properties.get("Qualifier", "$LATEST")
        return Made(physical_id=f"{name}|{qualifier}", attributes={})

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        self.delete(context, made, old)
        return self.create(context, properties)

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        client = context.client("lambda")
        try:
            client.delete_function_event_invoke_config(FunctionName=properties["FunctionName"])
        except client.exceptions.ResourceNotFoundException:
            return

    def _request(self, properties: Properties) -> dict[str, Any]:
        numbers = ("MaximumRetryAttempts", "MaximumEventAgeInSeconds")
        request = {key: int(properties[key]) for key in numbers if key in properties}
        destination = properties.get("DestinationConfig")
        return {
            "FunctionName": properties["FunctionName"],
            **request,
            **({"DestinationConfig": destination} if destination else {}),
        }


class _Nothing:
    """Exists in the template only (CDK's usage metadata)."""

    def create(self, context: Context, properties: Properties) -> Made:
        return Made(physical_id=context.generate_name(), attributes={})

    def update(self, context: Context, made: Made, old: Properties, properties: Properties) -> Made:
        return made

    def delete(self, context: Context, made: Made, properties: Properties) -> None:
        return


class _Permission(ApiType):
    """A statement in a function's policy; its id is generated as CloudFormation does."""

    def create(self, context: Context, properties: Properties) -> Made:
        return super().create(
            context, {**properties, "StatementId": context.generate_name(limit=100)}
        )


TYPES: Final[Mapping[str, ResourceType]] = {
    "AWS::Lambda::Function": _Function(
        service="lambda",
        create_call="create_function",
        physical_id="output.FunctionName",
        attributes={"Arn": "output.FunctionArn"},
        name="FunctionName",
        name_limit=64,
        apart=("ReservedConcurrentExecutions",),
        after=_remember,
        delete_call="delete_function",
        delete_input={"FunctionName": "{id}"},
    ),
    "AWS::Lambda::Permission": _Permission(
        service="lambda",
        create_call="add_permission",
        physical_id="input.StatementId",
        attributes={"Id": "input.StatementId"},
        delete_call="remove_permission",
        delete_input={"FunctionName": "{FunctionName}", "StatementId": "{id}"},
    ),
    "AWS::Lambda::EventInvokeConfig": _InvokeConfig(),
    "AWS::CDK::Metadata": _Nothing(),
}

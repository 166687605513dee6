"""DynamoDB as the controller uses it: one table, conditional writes, consistent reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer
from botocore.exceptions import ClientError

from cdk_blackwell.lifecycle.handler.clock import Clock
from cdk_blackwell.lifecycle.handler.definition import TABLE_PARTITION_KEY, TABLE_SORT_KEY
from cdk_blackwell.lifecycle.handler.errors import error_code

CONDITION_FAILED: Final = "ConditionalCheckFailed"
"""Code of an operation whose condition did not hold, in a cancelled transaction."""

_CONFLICT_TRIES: Final = 6

_serialize = TypeSerializer().serialize
_deserialize = TypeDeserializer().deserialize


@dataclass(frozen=True, kw_only=True)
class Table:
    """The table's primitives; a failed condition is an answer, not an error."""

    dynamodb: Any
    name: str
    clock: Clock

    def now(self) -> int:
        """Milliseconds since the epoch, as stored."""
        return milliseconds(self.clock.now())

    def get(self, partition: str, sort: str) -> dict[str, Any] | None:
        """One item, None when there is none."""
        answer = self.dynamodb.get_item(
            TableName=self.name, Key=_key(partition, sort), ConsistentRead=True
        )
        return _item(answer["Item"]) if "Item" in answer else None

    def query(self, partition: str) -> list[dict[str, Any]]:
        """All items of a partition."""
        pages = self.dynamodb.get_paginator("query").paginate(
            TableName=self.name,
            ConsistentRead=True,
            KeyConditionExpression=f"{TABLE_PARTITION_KEY} = :p",
            ExpressionAttributeValues=_values({":p": partition}),
        )
        return [_item(item) for page in pages for item in page["Items"]]

    def update(
        self,
        partition: str,
        sort: str,
        expression: str,
        values: Mapping[str, Any],
        *,
        condition: str | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> bool:
        """Update or create one item; False when the condition fails.

        ``extra`` holds the values that only the condition uses.
        """
        arguments: dict[str, Any] = {"UpdateExpression": expression}
        if condition is not None:
            arguments["ConditionExpression"] = condition
        operation = self.operation(partition, sort, values={**values, **(extra or {})}, **arguments)
        try:
            self.dynamodb.update_item(**operation)
        except ClientError as error:
            if error_code(error) == "ConditionalCheckFailedException":
                return False
            raise
        return True

    def operation(
        self, partition: str, sort: str, *, values: Mapping[str, Any], **arguments: str
    ) -> dict[str, Any]:
        """Arguments of one call or of one member of a transaction."""
        operation: dict[str, Any] = {
            "TableName": self.name,
            "Key": _key(partition, sort),
            **arguments,
        }
        if values:
            operation["ExpressionAttributeValues"] = _values(values)
        return operation

    def put_new(
        self,
        partition: str,
        sort: str,
        item: Mapping[str, Any],
        *,
        replaceable: tuple[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Member of a transaction: write an item that does not exist yet.

        One that has the attribute and value ``replaceable`` is written over.
        """
        condition = f"attribute_not_exists({TABLE_PARTITION_KEY})"
        put = {"TableName": self.name, "Item": {**_key(partition, sort), **_values(item)}}
        if replaceable is None:
            return {"Put": {**put, "ConditionExpression": condition}}
        attribute, value = replaceable
        return {
            "Put": {
                **put,
                "ConditionExpression": f"{condition} OR {attribute} = :replaceable",
                "ExpressionAttributeValues": _values({":replaceable": value}),
            }
        }

    def transact(self, operations: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
        """All or nothing: no codes when written, else one code per operation, why it was not."""
        for attempt in range(1, _CONFLICT_TRIES + 1):
            try:
                self.dynamodb.transact_write_items(TransactItems=list(operations))
                return ()
            except ClientError as error:
                if error_code(error) != "TransactionCanceledException":
                    raise
                reasons = error.response.get("CancellationReasons", [])
                codes = tuple(str(reason.get("Code")) for reason in reasons)
                if CONDITION_FAILED in codes:
                    return codes
                if "TransactionConflict" not in codes or attempt == _CONFLICT_TRIES:
                    raise
            self.clock.sleep(0.1 * 2**attempt)
        raise AssertionError("unreachable: the last try returns or raises")

    def delete(
        self, partition: str, sort: str, *, condition: str, values: Mapping[str, Any]
    ) -> bool:
        """Delete one item; False when the condition fails."""
        try:
            self.dynamodb.delete_item(
                **self.operation(partition, sort, values=values, ConditionExpression=condition)
            )
        except ClientError as error:
            if error_code(error) != "ConditionalCheckFailedException":
                raise
            return False
        return True


def _key(partition: str, sort: str) -> dict[str, Any]:
    return _values({TABLE_PARTITION_KEY: partition, TABLE_SORT_KEY: sort})


def _values(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _serialize(value) for key, value in item.items()}


def _item(item: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _deserialize(value) for key, value in item.items()}


def milliseconds(seconds: float) -> int:
    """Seconds as stored."""
    # Rounded, so that a time which was read compares equal to itself.
    return round(seconds * 1000)


def seconds(milliseconds: Any) -> float:
    """Stored milliseconds as seconds."""
    return float(milliseconds) / 1000

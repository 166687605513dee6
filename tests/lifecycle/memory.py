"""DynamoDB and S3 in memory, fast enough for tens of thousands of simulated steps.

They understand exactly what the controller says: update and condition expressions of the forms in
`store.py` and `answer.py`, transactions, conditional puts and copies. moto answers the same calls
in the other tests, and one test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from io import BytesIO
from typing import Any

from boto3.dynamodb.types import TypeDeserializer

from tests.lifecycle.fakes import Pages, error

Item = dict[str, Any]
_plain = TypeDeserializer().deserialize
_TOKEN = re.compile(r"\s*(<>|<=|>=|[=<>(),]|:?\w+)")
_OPERATORS = {"=": "==", "<>": "!=", "AND": "and", "OR": "or", "<": "<", "<=": "<=", ">": ">"}


@cache
def _compiled(expression: str) -> Callable[[Item, Item], bool]:
    """A condition as a function of an item and the expression's values, both plain."""
    words: list[str] = []
    tokens = _TOKEN.findall(expression)
    for index, token in enumerate(tokens):
        if token in _OPERATORS:
            words.append(_OPERATORS[token])
        elif token in "(),":
            words.append(token)
        elif token.startswith(":"):
            words.append(f"values[{token!r}]")
        elif token in ("attribute_not_exists", "attribute_exists"):
            words.append(token)
        elif tokens[index - 1 : index] == ["("] and tokens[index - 2].startswith("attribute_"):
            words.append(repr(token))
        else:
            words.append(f"get({token!r})")
    code = compile(" ".join(words), expression, "eval")

    def holds(item: Item, values: Item) -> bool:
        names = {
            "values": values,
            "get": lambda name: item.get(name, _ABSENT),
            "attribute_not_exists": lambda name: name not in item,
            "attribute_exists": lambda name: name in item,
        }
        return bool(eval(code, {"__builtins__": {}}, names))

    return holds


class _Absent:
    """A missing attribute: no comparison with it holds, except that it differs."""

    def __lt__(self, other: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


_ABSENT = _Absent()


class MemoryDynamoDB:
    """One table, items by partition and sort key."""

    def __init__(self) -> None:
        self.items: dict[tuple[str, str], Item] = {}
        self.exists = True

    def get_item(self, **arguments: Any) -> dict[str, Any]:
        self._require_table()
        assert arguments["ConsistentRead"]
        item = self.items.get(_key(arguments["Key"]))
        return {} if item is None else {"Item": dict(item)}

    def query(self, **arguments: Any) -> dict[str, Any]:
        self._require_table()
        assert arguments["ConsistentRead"]
        partition = _plain(arguments["ExpressionAttributeValues"][":p"])
        return {"Items": [dict(v) for k, v in sorted(self.items.items()) if k[0] == partition]}

    def get_paginator(self, operation: str) -> Pages:
        return Pages(lambda **arguments: [getattr(self, operation)(**arguments)])

    def update_item(self, **arguments: Any) -> dict[str, Any]:
        if not self._holds(arguments, arguments["Key"]):
            raise error("ConditionalCheckFailedException")
        self._update(arguments)
        return {}

    def delete_item(self, **arguments: Any) -> dict[str, Any]:
        if not self._holds(arguments, arguments["Key"]):
            raise error("ConditionalCheckFailedException")
        self.items.pop(_key(arguments["Key"]), None)
        return {}

    def transact_write_items(self, **arguments: Any) -> dict[str, Any]:
        members = [next(iter(each.items())) for each in arguments["TransactItems"]]
        holds = [self._holds(m, m.get("Key") or m["Item"]) for _, m in members]
        if not all(holds):
            refused = error("TransactionCanceledException")
            codes = [{"Code": "None" if each else "ConditionalCheckFailed"} for each in holds]
            refused.response["CancellationReasons"] = codes  # type: ignore[typeddict-item]
            raise refused
        for kind, member in members:
            if kind == "Put":
                self.items[_key(member["Item"])] = dict(member["Item"])
            elif kind == "Update":
                self._update(member)
            else:
                assert kind == "ConditionCheck"
        return {}

    def _require_table(self) -> None:
        if not self.exists:
            raise error("ResourceNotFoundException", "Requested resource not found")

    def _holds(self, arguments: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
        self._require_table()
        condition = arguments.get("ConditionExpression")
        if condition is None:
            return True
        item = _plain_item(self.items.get(_key(key), {}))
        return _compiled(condition)(
            item, _plain_item(arguments.get("ExpressionAttributeValues", {}))
        )

    def _update(self, arguments: Mapping[str, Any]) -> None:
        values = arguments["ExpressionAttributeValues"]
        item = self.items.setdefault(_key(arguments["Key"]), dict(arguments["Key"]))
        settings, _, removed = arguments["UpdateExpression"].partition(" REMOVE ")
        for name, value, default in re.findall(
            r"(\w+) = (?:(:\w+)|if_not_exists\(\w+, (:\w+)\))", settings.removeprefix("SET ")
        ):
            if value or name not in item:
                item[name] = values[value or default]
        for name in filter(None, removed.split(", ")):
            item.pop(name, None)


def _key(item: Mapping[str, Any]) -> tuple[str, str]:
    return item["pk"]["S"], item["sk"]["S"]


def _plain_item(item: Mapping[str, Any]) -> Item:
    return {key: _plain(value) for key, value in item.items()}


class MemoryS3:
    """Objects by bucket and key."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], tuple[bytes, dict[str, str]]] = {}

    def put_object(self, **arguments: Any) -> dict[str, Any]:
        key = arguments["Bucket"], arguments["Key"]
        if arguments.get("IfNoneMatch") == "*" and key in self.objects:
            raise error("PreconditionFailed", status=412)
        self.objects[key] = arguments["Body"], arguments.get("Metadata", {})
        return {}

    def head_object(self, **arguments: Any) -> dict[str, Any]:
        key = arguments["Bucket"], arguments["Key"]
        if key not in self.objects:
            raise error("404", status=404)
        return {"Metadata": self.objects[key][1]}

    def get_object(self, **arguments: Any) -> dict[str, Any]:
        key = arguments["Bucket"], arguments["Key"]
        if key not in self.objects:
            raise error("NoSuchKey", status=404)
        return {"Body": BytesIO(self.objects[key][0]), "Metadata": self.objects[key][1]}

    def copy_object(self, **arguments: Any) -> dict[str, Any]:
        source = arguments["CopySource"]["Bucket"], arguments["CopySource"]["Key"]
        if source not in self.objects:
            raise error("NoSuchKey", status=404)
        self.objects[arguments["Bucket"], arguments["Key"]] = self.objects[source]
        return {}

    def delete_object(self, **arguments: Any) -> dict[str, Any]:
        self.objects.pop((arguments["Bucket"], arguments["Key"]), None)
        return {}

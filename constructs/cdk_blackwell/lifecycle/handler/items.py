"""The table's items, read back as values.

An item that another version of this library, or a hand, left without what belongs to it is an error
that names it: what it stood for may cost money.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from cdk_blackwell.lifecycle.handler.definition import TABLE_PARTITION_KEY, TABLE_SORT_KEY
from cdk_blackwell.lifecycle.handler.records import Attempt, Owner, Run, Transition
from cdk_blackwell.lifecycle.handler.table import seconds

T = TypeVar("T")


class UnreadableItemError(ValueError):
    """An item lacks something, or holds something of another kind."""


def read(reader: Callable[[Mapping[str, Any]], T], item: Mapping[str, Any]) -> T:
    """``reader(item)``; UnreadableItemError says which item it is and what a person can do."""
    try:
        return reader(item)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        partition, key = item[TABLE_PARTITION_KEY], item[TABLE_SORT_KEY]
        raise UnreadableItemError(
            f"the item {partition!r}, {key!r} of the controller's table cannot be read "
            f"({type(error).__name__}: {error}): another version of cdk-blackwell, or a hand, "
            "wrote it. Deploy the version that wrote it, or stop the training job that it names "
            "in SageMaker if it still runs, and then delete the item"
        ) from error


def read_owner(item: Mapping[str, Any]) -> Owner:
    """One custom resource."""
    transition = item.get("transition")
    return Owner(
        owner=item[TABLE_SORT_KEY],
        stack_id=item["stack_id"],
        definition=item.get("job_definition", ""),
        desired=item["desired"],
        run_id=item.get("run_id"),
        changed_at=seconds(item.get("changed_at", 0)),
        transition=Transition(**transition) if transition else None,
    )


def read_run(item: Mapping[str, Any]) -> Run:
    """One run."""
    return Run(
        owner=item["owner"],
        run_id=item["run_id"],
        frozen=item["job_definition"],
        state=item["run_state"],
        message=item["message"],
    )


def read_attempt(item: Mapping[str, Any]) -> Attempt:
    """One claim."""
    return Attempt(
        job_name=item[TABLE_SORT_KEY],
        owner=item["owner"],
        stack_id=item["stack_id"],
        run_id=item["run_id"],
        attempt=int(item["attempt"]),
        state=item["attempt_state"],
        claimed_at=seconds(item["claimed_at"]),
        requester=item["requester"],
        held_until=seconds(item["held_until"]),
        due=seconds(item.get("due", 0)),
        delay=item.get("delay", ""),
        status=item.get("job_status", ""),
        cause=item.get("cause", "unknown"),
        reason=item.get("reason", ""),
        text=item.get("outcome", ""),
        last_complete_step=int(item.get("last_complete_step", 0)),
        trained=bool(item.get("trained", True)),
        billed_seconds=_read_billed(item),
        action=item.get("next_action"),
        done=bool(item.get("done", False)),
    )


def _read_billed(item: Mapping[str, Any]) -> float | None:
    billed = item.get("billed_ms")
    return None if billed is None else seconds(billed)

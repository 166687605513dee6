"""ListTrainingJobs: filters, order and pages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from cdk_blackwell.local.sagemaker.record import JobRecord

DEFAULT_PAGE: Final = 10
LARGEST_PAGE: Final = 100

_SORT_KEYS: Final[dict[str, Callable[[JobRecord], Any]]] = {
    "Name": lambda job: job.name,
    "CreationTime": lambda job: job.creation_time,
    "Status": lambda job: job.status,
}
_ORDERS: Final = ("Ascending", "Descending")


def list_jobs(jobs: Iterable[JobRecord], query: Mapping[str, Any]) -> dict[str, Any]:
    """The answer to one ListTrainingJobs request; ValueError says which member is wrong.

    Times in ``query`` are seconds since the epoch, as the JSON protocol sends them.
    """
    key = _one_of(query.get("SortBy", "CreationTime"), "SortBy", _SORT_KEYS)
    order = _one_of(query.get("SortOrder", "Ascending"), "SortOrder", _ORDERS)
    size = query.get("MaxResults", DEFAULT_PAGE)
    if not isinstance(size, int) or not 1 <= size <= LARGEST_PAGE:
        raise ValueError(f"MaxResults is {size!r}; allowed: 1 to {LARGEST_PAGE}")
    start = _page_start(query.get("NextToken", "0"))
    # The name settles the order of jobs that are equal otherwise, so that pages never overlap.
    found = sorted(
        (job for job in jobs if _matches(job, query)),
        key=lambda job: (_SORT_KEYS[key](job), job.name),
        reverse=order == "Descending",
    )
    more = {"NextToken": str(start + size)} if start + size < len(found) else {}
    return {
        "TrainingJobSummaries": [_summary(job) for job in found[start : start + size]],
        **more,
    }


def _one_of(value: str, name: str, allowed: Iterable[str]) -> str:
    if value not in allowed:
        raise ValueError(f"{name} is {value!r}; allowed: {', '.join(allowed)}")
    return value


def _page_start(token: str) -> int:
    if not token.isdigit():
        raise ValueError(f"NextToken is {token!r}; give the one of the page before")
    return int(token)


def _matches(job: JobRecord, query: Mapping[str, Any]) -> bool:
    plan = job.request["ResourceConfig"].get("TrainingPlanArn")
    return (
        query.get("NameContains", "").lower() in job.name.lower()
        and query.get("StatusEquals", job.status) == job.status
        and query.get("TrainingPlanArnEquals", plan) == plan
        # Warm pools are never kept here, so no job has a WarmPoolStatus.
        and "WarmPoolStatusEquals" not in query
        and _within(job.creation_time, query, "CreationTime")
        and _within(job.last_modified_time, query, "LastModifiedTime")
    )


def _within(moment: float, query: Mapping[str, Any], member: str) -> bool:
    after = query.get(f"{member}After", float("-inf"))
    before = query.get(f"{member}Before", float("inf"))
    return bool(after < moment < before)


def _summary(job: JobRecord) -> dict[str, Any]:
    description = job.describe()
    plan = job.request["ResourceConfig"].get("TrainingPlanArn")
    members = (
        "TrainingJobName",
        "TrainingJobArn",
        "CreationTime",
        "TrainingEndTime",
        "LastModifiedTime",
        "TrainingJobStatus",
        "SecondaryStatus",
    )
    known = {name: description[name] for name in members if name in description}
    return {**known, **({"TrainingPlanArn": plan} if plan else {})}

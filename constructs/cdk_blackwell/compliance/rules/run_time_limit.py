"""The end of a job is a decision, not a default."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.quotas import LONGEST_RUN_SECONDS
from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """No MaxRuntimeInSeconds, or one beyond the quota accounts begin with."""
    for request in training_requests(templates):
        limit = request.find("StoppingCondition", "MaxRuntimeInSeconds")
        where = f"{request.where}/StoppingCondition"
        if limit is None:
            found = "StoppingCondition has no MaxRuntimeInSeconds"
        elif isinstance(limit, int) and limit > LONGEST_RUN_SECONDS:
            found = (
                f"MaxRuntimeInSeconds is {limit}, beyond the quota of 5 days accounts begin with"
            )
        else:
            continue
        yield Finding(resource=request.resource, found=found, where=where)


RULE = Rule(
    id="RunTimeLimit",
    title="A job has a run time limit within the account's quota.",
    why=(
        "SageMaker's default ends every job after one day; a limit above the quota is refused"
        " at launch. The limit is also what bounds the cost of a job that hangs."
    ),
    fix=(
        "Set StoppingCondition.MaxRuntimeInSeconds to what the plan needs; above 5 days raise"
        " the quota 'Longest run time for a training job' first and acknowledge this rule."
    ),
    severity="warning",
    check=check,
)

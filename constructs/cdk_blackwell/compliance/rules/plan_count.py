"""Training plans come in certain sizes."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.instance_types import PLAN_INSTANCE_COUNTS
from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """A training plan with a count that is not sold."""
    for request in training_requests(templates):
        plan = request.find("ResourceConfig", "TrainingPlanArn")
        count = request.instance_count
        if plan is not None and count is not None and count not in PLAN_INSTANCE_COUNTS:
            yield Finding(
                resource=request.resource,
                found=f"InstanceCount is {count} under a training plan",
                where=f"{request.where}/ResourceConfig/InstanceCount",
            )


RULE = Rule(
    id="PlanCount",
    title="A job under a training plan has 1, 2, 4, 8, 16, 32 or 64 instances.",
    why=(
        "Plans are sold in these sizes and are not refundable; a job of another size is "
        "refused or leaves paid instances idle."
    ),
    fix="Use one of these counts, and a plan of that size.",
    severity="error",
    check=check,
)

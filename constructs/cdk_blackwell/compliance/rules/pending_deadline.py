"""How long a job may wait for instances is somebody's decision."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, is_intrinsic


def check(templates: Templates) -> Iterator[Finding]:
    """No MaxPendingTimeInSeconds, other than for spot, which has its own."""
    for request in training_requests(templates):
        pending = request.find("StoppingCondition", "MaxPendingTimeInSeconds")
        spot = request.spot or is_intrinsic(request.find("EnableManagedSpotTraining"))
        if pending is None and not spot:
            yield Finding(
                resource=request.resource,
                found="StoppingCondition has no MaxPendingTimeInSeconds",
                where=f"{request.where}/StoppingCondition",
            )


RULE = Rule(
    id="PendingDeadline",
    title="A job says how long it waits for instances.",
    why=(
        "B200 capacity is scarce. Without a deadline SageMaker fails the job at once or lets "
        "it wait at its own discretion, and nobody is told when it is too late to matter."
    ),
    fix=(
        "Set StoppingCondition.MaxPendingTimeInSeconds (1,800 to 2,419,200); "
        "Capacity.on_demand(max_pending=...) does."
    ),
    severity="error",
    check=check,
)

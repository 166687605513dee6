"""Kinds of capacity that SageMaker does not combine."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import TrainingRequest, training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, is_intrinsic


def check(templates: Templates) -> Iterator[Finding]:
    """Spot with warm pool, with a plan or without enough waiting time; preferences with any."""
    for request in training_requests(templates):
        for found in _mistakes(request):
            yield Finding(resource=request.resource, found=found, where=request.where)


def _mistakes(request: TrainingRequest) -> Iterator[str]:
    seconds = request.find("ResourceConfig", "KeepAlivePeriodInSeconds")
    warm = seconds != 0 and request.asks_for("ResourceConfig", "KeepAlivePeriodInSeconds")
    plan = request.asks_for("ResourceConfig", "TrainingPlanArn")
    preferences = request.asks_for("ResourceConfig", "InstancePreferences")
    if request.spot and warm:
        yield f"managed spot training and a warm pool of {seconds} s are both asked for"
    if request.spot and plan:
        yield "managed spot training and a training plan are both asked for"
    run_time = request.find("StoppingCondition", "MaxRuntimeInSeconds")
    wait = request.find("StoppingCondition", "MaxWaitTimeInSeconds")
    if request.spot and (
        wait is None or (isinstance(wait, int) and isinstance(run_time, int) and wait < run_time)
    ):
        yield f"spot waits {wait} s (MaxWaitTimeInSeconds) for {run_time} s of run time"
    unknown = is_intrinsic(request.find("EnableManagedSpotTraining"))
    waits = request.asks_for("StoppingCondition", "MaxWaitTimeInSeconds")
    if waits and not request.spot and not unknown:
        yield "MaxWaitTimeInSeconds is given without managed spot training"
    if preferences and (request.spot or warm or request.instance_type):
        yield "InstancePreferences is combined with InstanceType, spot or a warm pool"


RULE = Rule(
    id="CapacityMix",
    title="Kinds of capacity are combined only as SageMaker allows.",
    why=(
        "The request is refused at launch, after the deploy. Spot counts its waiting and "
        "running together, so its wait time must be at least the run time."
    ),
    fix=(
        "Choose one of on demand (with or without warm pool), training plan and managed spot;"
        " give spot MaxWaitTimeInSeconds of at least MaxRuntimeInSeconds."
    ),
    severity="error",
    check=check,
)

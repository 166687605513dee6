"""SageMaker's own model of the request, before a deploy."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import is_plain, training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.service_model import check_training_request
from cdk_blackwell.compliance.templates import Templates

AT_LAUNCH = frozenset({"TrainingJobName", "HyperParameters"})
"""What a controller or a state machine may add."""


def check(templates: Templates) -> Iterator[Finding]:
    """Members that are unknown, too long, out of range or of the wrong form."""
    for request in training_requests(templates):
        for violation in check_training_request(dict(request.request), is_unresolved=_unknown):
            if violation.where in AT_LAUNCH:
                continue
            yield Finding(
                resource=request.resource,
                found=str(violation),
                where=f"{request.where}/{violation.where}",
            )


def _unknown(value: object) -> bool:
    """Intrinsic functions, and text with placeholders."""
    if isinstance(value, str):
        return not is_plain(value)
    return (
        isinstance(value, dict)
        and len(value) == 1
        and next(iter(value)).startswith(("Fn::", "Ref"))
    )


RULE = Rule(
    id="RequestLimits",
    title="A CreateTrainingJob request keeps within SageMaker's limits.",
    why=(
        "CloudFormation does not look into the request, so a name that is too long or a "
        "number out of range fails only at launch, after the deploy."
    ),
    fix=("Change the member to what is allowed; botocore's model of SageMaker is the authority."),
    severity="error",
    check=check,
)

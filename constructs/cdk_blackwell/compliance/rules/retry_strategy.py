"""SageMaker's own errors need not end a run."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """No RetryStrategy."""
    for request in training_requests(templates):
        if request.find("RetryStrategy", "MaximumRetryAttempts") is None:
            yield Finding(
                resource=request.resource,
                found="there is no RetryStrategy",
                where=request.where,
            )


RULE = Rule(
    id="RetryStrategy",
    title="A job is retried after SageMaker's internal errors.",
    why=(
        "An internal server error after days of waiting for capacity gives the instances "
        "back; a retry keeps the place."
    ),
    fix=(
        "Set RetryStrategy.MaximumRetryAttempts (1-30); the script must resume from its "
        "newest checkpoint."
    ),
    severity="warning",
    check=check,
)

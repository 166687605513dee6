"""A job's environment is public within the account."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cdk_blackwell.compliance.requests import is_plain, training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates

_SECRET_NAME = re.compile(r"(?:^|_)(?:TOKEN|SECRET|PASSWORD|API_KEY|ACCESS_KEY)$", re.IGNORECASE)


def check(templates: Templates) -> Iterator[Finding]:
    """Variables whose names say secret, with a value in the template."""
    for request in training_requests(templates):
        for name, value in request.environment.items():
            if _SECRET_NAME.search(name) and is_plain(value):
                yield Finding(
                    resource=request.resource,
                    found=f"environment variable {name} has a value in the template",
                    where=f"{request.where}/Environment/{name}",
                )


RULE = Rule(
    id="EnvironmentSecret",
    title="No secret stands in a job's environment.",
    why=(
        "The environment is shown in the template, in SageMaker's console and by "
        "DescribeTrainingJob to everybody who may read jobs."
    ),
    fix="Keep it in AWS Secrets Manager and let the script read it with the training role.",
    severity="error",
    check=check,
)

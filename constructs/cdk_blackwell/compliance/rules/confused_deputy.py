"""SageMaker may take the role for jobs of this account only."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, as_list, as_mapping, is_intrinsic, member


def check(templates: Templates) -> Iterator[Finding]:
    """Training roles that SageMaker may assume on anybody's behalf."""
    for request in training_requests(templates):
        role = templates.target(request.find("RoleArn"), request.resource.template)
        for statement in as_list(
            role.find("AssumeRolePolicyDocument", "Statement") if role else None
        ):
            condition = member(statement, "Condition")
            keys = {
                str(key).lower()
                for pairs in as_mapping(condition).values()
                for key in as_mapping(pairs)
            }
            parts = (statement, condition, *as_mapping(condition).values())
            unknown = any(is_intrinsic(part) for part in parts)
            if role and not unknown and not keys & {"aws:sourcearn", "aws:sourceaccount"}:
                yield Finding(
                    resource=role,
                    found="SageMaker may assume it without aws:SourceArn or aws:SourceAccount",
                    where="Properties/AssumeRolePolicyDocument",
                )


RULE = Rule(
    id="ConfusedDeputy",
    title="A training role can be assumed for jobs of this account only.",
    why=(
        "A service that acts for many accounts could be made to use this role for somebody "
        "else's job."
    ),
    fix=(
        "Add a condition on aws:SourceArn (or aws:SourceAccount) to the trust policy "
        "(TrainingRole does)."
    ),
    severity="error",
    check=check,
)

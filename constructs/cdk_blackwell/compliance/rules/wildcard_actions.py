"""A training script runs code that changes daily."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.identities import policies_of
from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, as_list, member


def check(templates: Templates) -> Iterator[Finding]:
    """Training roles whose policies allow all actions of a service, or all."""
    for request in training_requests(templates):
        role = templates.target(request.find("RoleArn"), request.resource.template)
        for policy in policies_of(templates, role) if role else []:
            actions = sorted(
                {
                    action
                    for statement in as_list(policy.find("PolicyDocument", "Statement"))
                    if member(statement, "Effect") == "Allow"
                    for action in as_list(member(statement, "Action"))
                    if isinstance(action, str) and (action == "*" or action.endswith(":*"))
                }
            )
            if actions:
                yield Finding(
                    resource=policy,
                    found=f"the role of {request.resource.logical_id} may do {', '.join(actions)}",
                    where="Properties/PolicyDocument",
                )


RULE = Rule(
    id="WildcardActions",
    title="A training role names the actions it needs.",
    why=("Whatever a dependency of the training script turns out to do, it does with this role."),
    fix="Name the actions and the prefixes (TrainingRole's table says which and why).",
    severity="error",
    check=check,
)

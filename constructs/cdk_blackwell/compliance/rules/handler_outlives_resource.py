"""The delete event needs the permissions of the create event."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.identities import policies_of
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Custom resources whose handler may lose its policy first."""
    for template in templates.all:
        for resource in template.resources.values():
            if not resource.type.startswith("Custom::"):
                continue
            function = templates.target(resource.find("ServiceToken"), template)
            if function is None or function.template is not template:
                continue
            role = templates.target(function.find("Role"), template)
            if role is None:
                continue
            short_lived = [
                policy.logical_id
                for policy in policies_of(templates, role)
                if policy.template is template and policy.logical_id not in resource.all_needs
            ]
            if short_lived:
                yield Finding(
                    resource=resource,
                    found=f"it does not depend on {', '.join(sorted(short_lived))}, which its "
                    f"handler {function.logical_id} works under",
                    where="DependsOn",
                )


RULE = Rule(
    id="HandlerOutlivesResource",
    title="A custom resource depends on the policies of its handler.",
    why=(
        "CloudFormation may delete the policy first; the Delete event then finds no "
        "permission left, and what it should stop (here: a job at about 100 USD an hour) goes"
        " on."
    ),
    fix="custom_resource.node.add_dependency(policy) for every policy of the handler's role.",
    severity="error",
    check=check,
)

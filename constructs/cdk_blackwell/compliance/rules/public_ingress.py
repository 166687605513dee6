"""Nobody outside needs to reach a training instance."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.security_groups import groups_of, open_to_all
from cdk_blackwell.compliance.templates import Resource, Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Groups of jobs and Lustre file systems that admit any address."""
    groups: dict[int, Resource] = {}
    for request in training_requests(templates):
        groups |= {id(group): group for group in request.groups(templates)}
    for file_system in templates.resources("AWS::FSx::FileSystem"):
        found = groups_of(templates, file_system, "SecurityGroupIds")
        groups |= {id(group): group for group in found}
    for group in groups.values():
        for source in open_to_all(templates, group):
            yield Finding(resource=group, found=f"it admits traffic from {source}")


RULE = Rule(
    id="PublicIngress",
    title="No job and no file system admits traffic from any address.",
    why=(
        "Training instances and Lustre servers hold data and weights and speak protocols "
        "without authentication; nothing outside the VPC has a reason to connect."
    ),
    fix="Admit security groups by reference, never 0.0.0.0/0 or ::/0.",
    severity="error",
    check=check,
)

"""FSx checks its ports while it is being created."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.security_groups import groups_of, rule_resources
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """A Lustre file system that does not wait for the rules of its groups."""
    for file_system in templates.resources("AWS::FSx::FileSystem"):
        if file_system.find("FileSystemType") != "LUSTRE":
            continue
        groups = groups_of(templates, file_system, "SecurityGroupIds")
        late = [
            rule.logical_id
            for group in groups
            for rule in rule_resources(templates, group)
            if rule.template is file_system.template
            # A job's own rules on the file system's group come later by design.
            and templates.target(_peer(rule.properties), rule.template) in (None, *groups)
            and rule.logical_id not in file_system.all_needs
        ]
        if late:
            yield Finding(
                resource=file_system,
                found=f"it does not wait for {', '.join(sorted(late))}",
                where="DependsOn",
            )


def _peer(properties: Mapping[str, Any]) -> Any:
    return properties.get("SourceSecurityGroupId") or properties.get("DestinationSecurityGroupId")


RULE = Rule(
    id="FileSystemAfterRules",
    title="A Lustre file system depends on the rules of its security group.",
    why=(
        "FSx checks at creation that Lustre can pass and fails with 'do not permit Lustre "
        "LNET network traffic on port 988'; CloudFormation does not know that the rules "
        "matter and may make them later. CDK's LustreFileSystem has no such dependency."
    ),
    fix=(
        "file_system.node.add_dependency(security_group), and on every rule that is a "
        "resource of its own."
    ),
    severity="error",
    check=check,
)

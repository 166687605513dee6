"""Policies of a role, in any template."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.templates import Resource, Templates, as_list


def policies_of(templates: Templates, role: Resource) -> Iterator[Resource]:
    """Inline and managed policies that name ``role``, or that it names."""
    for policy in templates.resources("AWS::IAM::Policy", "AWS::IAM::ManagedPolicy"):
        roles = policy.find("Roles")
        if any(
            templates.target(value, policy.template) is role
            for value in (roles if isinstance(roles, list) else [])
        ):
            yield policy
    for value in as_list(role.find("ManagedPolicyArns")):
        named = templates.target(value, role.template)
        if named is not None and named.type == "AWS::IAM::ManagedPolicy":
            yield named

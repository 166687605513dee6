"""Encrypting between instances is not free."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """EnableInterContainerTrafficEncryption on several instances."""
    for request in training_requests(templates):
        if request.multi_node and request.find("EnableInterContainerTrafficEncryption") is True:
            yield Finding(
                resource=request.resource,
                found=f"traffic among {request.instance_count} instances is encrypted",
                where=f"{request.where}/EnableInterContainerTrafficEncryption",
            )


RULE = Rule(
    id="TrafficEncryption",
    title="Encryption between instances is a decision, because of what it costs.",
    why=(
        "It slows distributed training, needs UDP 500 and ESP in the security group, and its "
        "effect on EFA is not documented; traffic stays within one VPC in any case."
    ),
    fix=(
        "Leave it off, or acknowledge this rule where a policy demands it and open UDP 500 "
        "and protocol 50 within the group."
    ),
    severity="warning",
    check=check,
)

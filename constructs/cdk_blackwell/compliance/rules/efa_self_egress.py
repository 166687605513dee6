"""EFA works only among members of one security group."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.instance_types import EFA_FAMILIES, family
from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.security_groups import allows
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Several EFA instances, and a group that does not admit itself in both directions."""
    for request in training_requests(templates):
        if family(request.instance_type) not in EFA_FAMILIES or request.instance_count == 1:
            continue
        groups = request.groups(templates)
        if len(groups) < len(request.security_groups):
            continue  # One is not of this app: what it allows is not known.
        for direction in ("ingress", "egress"):
            if groups and not any(
                allows(templates, group, group, direction=direction, port=None) for group in groups
            ):
                yield Finding(
                    resource=groups[0],
                    found=f"no {direction} rule admits all traffic of the group itself, and "
                    f"{request.resource.logical_id} trains on several {request.instance_type}",
                )


RULE = Rule(
    id="EfaSelfEgress",
    title="The security group of instances that use EFA admits all traffic from and to itself.",
    why=(
        "EFA traffic is not IP and matches only rules that name the group itself, ingress and"
        " egress; without both the handshake fails, or NCCL falls back to TCP and GPUs wait. "
        "CDK's allow_all_outbound=True silently drops such an egress rule."
    ),
    fix=(
        "Add AWS::EC2::SecurityGroupIngress and AWS::EC2::SecurityGroupEgress with IpProtocol"
        " -1 that name the group itself (JobSecurityGroup does), and make the group with "
        "allow_all_outbound=False."
    ),
    severity="error",
    check=check,
)

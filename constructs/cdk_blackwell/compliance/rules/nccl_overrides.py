"""NCCL knows the fabric better than a variable copied from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.instance_types import EFA_FAMILIES, family
from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates

NAMES = ("NCCL_PROTO", "NCCL_ALGO")


def check(templates: Templates) -> Iterator[Finding]:
    """NCCL's choice of protocol or algorithm taken away."""
    for request in training_requests(templates):
        for name in NAMES:
            if name in request.environment and family(request.instance_type) in EFA_FAMILIES:
                yield Finding(
                    resource=request.resource,
                    found=f"{name} is {request.environment[name]}",
                    where=f"{request.where}/Environment/{name}",
                )


RULE = Rule(
    id="NcclOverrides",
    title="NCCL chooses protocol and algorithm itself.",
    why="NCCL_PROTO=simple costs bandwidth on every step, and NCCL_ALGO=Tree hangs on B200.",
    fix="Remove the variable; set FI_PROVIDER=efa and leave the rest to NCCL.",
    severity="warning",
    check=check,
)

"""SageMaker's own launcher does not know this instance type."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.instance_types import BLACKWELL_FAMILIES, family
from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Several Blackwell instances started by the image's own launcher."""
    for request in training_requests(templates):
        if (
            family(request.instance_type) in BLACKWELL_FAMILIES
            and request.instance_count != 1
            and not request.find("AlgorithmSpecification", "ContainerEntrypoint")
        ):
            yield Finding(
                resource=request.resource,
                found=f"{request.instance_type} without AlgorithmSpecification.ContainerEntrypoint",
                where=f"{request.where}/AlgorithmSpecification",
            )


RULE = Rule(
    id="OwnEntrypoint",
    title="Several Blackwell instances start by an entrypoint of their own.",
    why=(
        "The SageMaker training toolkit (5.1.4) does not count ml.p6-b200 among its EFA types"
        " and forces NCCL_PROTO=simple; the same omission on p5e hung jobs of 256 ranks."
    ),
    fix=(
        "Set ContainerEntrypoint to a launcher that starts torchrun (launch.py of this "
        "library does)."
    ),
    severity="warning",
    check=check,
)

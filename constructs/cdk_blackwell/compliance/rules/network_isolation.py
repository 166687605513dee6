"""An isolated container reaches nothing but its channels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cdk_blackwell.compliance.requests import TrainingRequest, training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates

_NEEDS_NETWORK = re.compile(
    r"^(?:CDKB_RUN_S3|HF_|HUGGING_?FACE|PIP_|WANDB_|.*_PROXY$)", re.IGNORECASE
)


def check(templates: Templates) -> Iterator[Finding]:
    """EnableNetworkIsolation beside something that needs the network."""
    for request in training_requests(templates):
        if request.find("EnableNetworkIsolation") is not True:
            continue
        for need in _needs(request):
            yield Finding(
                resource=request.resource,
                found=f"EnableNetworkIsolation is on, and {need}",
                where=f"{request.where}/EnableNetworkIsolation",
            )


def _needs(request: TrainingRequest) -> Iterator[str]:
    names = sorted(name for name in request.environment if _NEEDS_NETWORK.match(name))
    if names:
        yield f"the environment speaks of calls that leave the container ({', '.join(names)})"
    if request.file_systems:
        yield "a channel is a file system, which nobody has confirmed to work under isolation"


RULE = Rule(
    id="NetworkIsolation",
    title="Network isolation is not combined with what needs the network.",
    why=(
        "Under isolation there is no S3, no package index, no hub and no CloudWatch from "
        "inside the container: progress reports stop, so that resuming looks like no "
        "progress, and downloads fail."
    ),
    fix=(
        "Leave EnableNetworkIsolation off and close the network instead: a private subnet "
        "without NAT and with an S3 gateway endpoint; or bring everything through S3 "
        "channels."
    ),
    severity="error",
    check=check,
)

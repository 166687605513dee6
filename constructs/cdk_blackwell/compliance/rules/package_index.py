"""What the image lacks must come from somewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator

from cdk_blackwell.compliance.aws_images import dlc_accounts
from cdk_blackwell.compliance.bundles import bundle_of
from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.routes import codeartifact, leads_out
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def _is_deep_learning_container(image: str) -> bool:
    """Whether AWS made the image; what an own one holds is not known here."""
    return any(f"{account}.dkr.ecr." in image for account in dlc_accounts())


def check(templates: Templates) -> Iterator[Finding]:
    """Jobs on AWS's image, without a way to an index, whose bundle carries no wheels."""
    for request in training_requests(templates):
        image = json.dumps(request.find("AlgorithmSpecification", "TrainingImage"))
        bundle = bundle_of(request)
        subnets = [templates.target(value, request.resource.template) for value in request.subnets]
        if not _is_deep_learning_container(image) or bundle is None or not subnets:
            continue
        if any(s is None or leads_out(templates, s) or codeartifact(templates, s) for s in subnets):
            continue
        missing = bundle.missing_wheels()
        if missing:
            yield Finding(
                resource=request.resource,
                found=f"the bundle lacks wheels of {', '.join(missing)}, AWS's image does not hold "
                "them, and the job's subnet has no way to a package index",
                where=request.where,
            )


RULE = Rule(
    id="PackageIndex",
    title="A job without a way to a package index carries the packages that its image lacks.",
    why=(
        "The container cannot install them at start and fails after the instances are up: "
        "minutes of every attempt are paid for nothing."
    ),
    fix=(
        "Run 'cdk-blackwell vendor' and synthesise again, use an own image that holds them, "
        "or give the network NAT or a CodeArtifact endpoint."
    ),
    severity="error",
    check=check,
)

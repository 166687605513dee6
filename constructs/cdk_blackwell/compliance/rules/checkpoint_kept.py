"""A stack that goes must not take weeks of training with it."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Buckets of checkpoints and models that are deleted with their stack."""
    for request in training_requests(templates):
        for what, bucket in request.buckets(templates):
            if not bucket.kept:
                yield Finding(
                    resource=bucket,
                    found=f"{what} of {request.resource.logical_id} go with the stack",
                    where="DeletionPolicy",
                )


RULE = Rule(
    id="CheckpointKept",
    title="Buckets of checkpoints and models outlive their stack.",
    why=(
        "A mistaken destroy, or a replacement by a changed name, would delete what cost "
        "thousands of dollars to compute."
    ),
    fix=("Set the removal policy to RETAIN or RETAIN_ON_UPDATE_OR_DELETE (CheckpointStore does)."),
    severity="error",
    check=check,
)

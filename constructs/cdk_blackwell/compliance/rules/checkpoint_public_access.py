"""Buckets of runs are closed by configuration, not by luck."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, is_intrinsic

SETTINGS = ("BlockPublicAcls", "BlockPublicPolicy", "IgnorePublicAcls", "RestrictPublicBuckets")


def check(templates: Templates) -> Iterator[Finding]:
    """Buckets of checkpoints and models where public access is not blocked altogether."""
    for request in training_requests(templates):
        for what, bucket in request.buckets(templates):
            open_ = [
                name
                for name in SETTINGS
                if not is_intrinsic(value := bucket.find("PublicAccessBlockConfiguration", name))
                and str(value).lower() != "true"
            ]
            if open_:
                yield Finding(
                    resource=bucket,
                    found=f"{what} of {request.resource.logical_id}: {', '.join(open_)} not set",
                    where="Properties/PublicAccessBlockConfiguration",
                )


RULE = Rule(
    id="CheckpointPublicAccess",
    title="Buckets of checkpoints and models block public access.",
    why="One wrong policy or object ACL would publish the weights.",
    fix=("Set all four members of PublicAccessBlockConfiguration (BlockPublicAccess.BLOCK_ALL)."),
    severity="error",
    check=check,
)

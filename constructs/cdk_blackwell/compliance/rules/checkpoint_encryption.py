"""Weights are what a training run is worth."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, as_list, is_intrinsic, member


def check(templates: Templates) -> Iterator[Finding]:
    """Buckets of checkpoints and models that are not encrypted with a KMS key."""
    for request in training_requests(templates):
        for what, bucket in request.buckets(templates):
            rules = bucket.find("BucketEncryption", "ServerSideEncryptionConfiguration")
            kinds = [
                member(rule, "ServerSideEncryptionByDefault", "SSEAlgorithm")
                for rule in as_list(rules)
            ]
            if not any(is_intrinsic(kind) or str(kind).startswith("aws:kms") for kind in kinds):
                yield Finding(
                    resource=bucket,
                    found=f"{what} of {request.resource.logical_id} are kept without a KMS key",
                    where="Properties/BucketEncryption",
                )


RULE = Rule(
    id="CheckpointEncryption",
    title="Checkpoints and models are encrypted with a KMS key.",
    why=(
        "Without an own key there is no second lock: whoever may read the bucket has the "
        "weights, and no key policy or audit trail says who used them."
    ),
    fix="Encrypt the bucket with aws:kms and a customer-managed key (CheckpointStore does).",
    severity="error",
    check=check,
)

"""Weights travel encrypted too."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Resource, Templates, as_list, is_intrinsic, member


def check(templates: Templates) -> Iterator[Finding]:
    """Buckets of checkpoints and models without a policy that denies plain HTTP."""
    for request in training_requests(templates):
        for what, bucket in request.buckets(templates):
            if not _denies_plain(templates, bucket):
                yield Finding(
                    resource=bucket,
                    found=f"no policy denies requests without TLS for {what} of "
                    f"{request.resource.logical_id}",
                )


def _denies_plain(templates: Templates, bucket: Resource) -> bool:
    for policy in templates.resources("AWS::S3::BucketPolicy"):
        if templates.target(policy.find("Bucket"), policy.template) is not bucket:
            continue
        for statement in as_list(policy.find("PolicyDocument", "Statement")):
            secure = member(statement, "Condition", "Bool", "aws:SecureTransport")
            effect = member(statement, "Effect")
            if is_intrinsic(secure) or (
                (effect == "Deny" or is_intrinsic(effect)) and str(secure).lower() == "false"
            ):
                return True
    return False


RULE = Rule(
    id="CheckpointTls",
    title="Buckets of checkpoints and models refuse requests without TLS.",
    why=(
        "S3 answers plain HTTP unless told not to; a misconfigured client would send weights "
        "readable."
    ),
    fix="Deny aws:SecureTransport false in the bucket's policy (enforce_ssl=True).",
    severity="error",
    check=check,
)

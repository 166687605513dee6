"""Interrupted uploads are invisible and billed."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, as_list, member


def check(templates: Templates) -> Iterator[Finding]:
    """Buckets of checkpoints that keep parts of interrupted multipart uploads for ever."""
    for request in training_requests(templates):
        for what, bucket in request.buckets(templates):
            rules = as_list(bucket.find("LifecycleConfiguration", "Rules"))
            if not any(member(rule, "AbortIncompleteMultipartUpload") for rule in rules):
                yield Finding(
                    resource=bucket,
                    found=f"no lifecycle rule aborts stale uploads of {what}",
                    where="Properties/LifecycleConfiguration",
                )


RULE = Rule(
    id="StaleUploads",
    title="Buckets of checkpoints abort stale multipart uploads.",
    why=(
        "A job that is killed while it saves leaves parts behind; a checkpoint is about 12 "
        "bytes per parameter, and such parts are listed nowhere."
    ),
    fix="Add a lifecycle rule with AbortIncompleteMultipartUpload (CheckpointStore does).",
    severity="warning",
    check=check,
)

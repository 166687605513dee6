"""An interrupted spot job goes on only from a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Managed spot without any place for checkpoints."""
    for request in training_requests(templates):
        writable = any(s.get("FileSystemAccessMode") == "rw" for s in request.file_systems)
        if request.spot and request.find("CheckpointConfig") is None and not writable:
            yield Finding(
                resource=request.resource,
                found="managed spot training without CheckpointConfig or a writable file system",
                where=request.where,
            )


RULE = Rule(
    id="SpotCheckpoints",
    title="A spot job keeps checkpoints.",
    why=(
        "AWS takes spot instances back at any time; without a checkpoint every interruption "
        "begins at step 0 and pays again."
    ),
    fix="Add CheckpointConfig on one instance, or a read-write FSx channel on several.",
    severity="error",
    check=check,
)

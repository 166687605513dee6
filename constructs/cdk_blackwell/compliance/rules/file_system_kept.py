"""A file system that is written to holds what S3 may not have yet."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """Writable file systems of jobs that are deleted with their stack."""
    for request in training_requests(templates):
        for source in request.file_systems:
            file_system = templates.target(source.get("FileSystemId"), request.resource.template)
            if (
                source.get("FileSystemAccessMode") == "rw"
                and file_system is not None
                and not file_system.kept
            ):
                yield Finding(
                    resource=file_system,
                    found=f"{request.resource.logical_id} writes to it, and it goes with its stack",
                    where="DeletionPolicy",
                )


RULE = Rule(
    id="FileSystemKept",
    title="A file system that jobs write to outlives its stack.",
    why=("Exports to S3 are asynchronous; what was not exported yet is gone with the file system."),
    fix=("Set the removal policy to RETAIN or RETAIN_ON_UPDATE_OR_DELETE (SharedFileSystem does)."),
    severity="error",
    check=check,
)

"""What vanishes from Lustre must not vanish from S3."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates, as_list


def check(templates: Templates) -> Iterator[Finding]:
    """Associations that export deletions."""
    for association in templates.resources("AWS::FSx::DataRepositoryAssociation"):
        events = as_list(association.find("S3", "AutoExportPolicy", "Events"))
        if "DELETED" in events:
            yield Finding(
                resource=association,
                found="it exports DELETED events",
                where="Properties/S3/AutoExportPolicy/Events",
            )


RULE = Rule(
    id="ExportDeletions",
    title="Associations export new and changed files, never deletions.",
    why=(
        "Pruning checkpoints on the file system would delete their only durable copies, "
        "unordered and without a check that newer ones have arrived."
    ),
    fix="Export NEW and CHANGED only, and prune in S3 with a job that verifies first.",
    severity="error",
    check=check,
)

"""CheckpointConfig is made for one host."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import training_requests
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates


def check(templates: Templates) -> Iterator[Finding]:
    """CheckpointConfig on several instances."""
    for request in training_requests(templates):
        if request.multi_node and request.find("CheckpointConfig") is not None:
            yield Finding(
                resource=request.resource,
                found=f"CheckpointConfig with InstanceCount {request.instance_count}",
                where=f"{request.where}/CheckpointConfig",
            )


RULE = Rule(
    id="SharedCheckpointPrefix",
    title="A job on several instances does not use CheckpointConfig.",
    why=(
        "Every host syncs its folder with one shared prefix, deletions included, and "
        "downloads all of it at start: shards of other hosts vanish, and a large checkpoint "
        "fills every disk."
    ),
    fix=(
        "Write distributed checkpoints to a read-write FSx channel and export it with a data "
        "repository association (MidModelJob and LargeShardedJob do)."
    ),
    severity="error",
    check=check,
)

"""Where a job writes its checkpoints: local disks synced to S3, or the shared file system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from constructs import Construct, IDependable

from cdk_blackwell.infrastructure.checkpoint_store import ICheckpointStore
from cdk_blackwell.infrastructure.file_system import (
    CHECKPOINTS_PATH,
    ISharedFileSystem,
    export_checkpoints,
)
from cdk_blackwell.lifecycle.handler.definition import PLACEHOLDER_RUN_ID, PLACEHOLDER_RUN_URI
from cdk_blackwell.planning.contracts import (
    CHANNEL_CHECKPOINTS,
    CHECKPOINTS_FOLDER,
    CONTAINER_CHECKPOINTS,
    CONTAINER_ROOT,
)


@dataclass(frozen=True, kw_only=True)
class Checkpoints:
    """One job's place for checkpoints, as the request and the container name it."""

    container_directory: str
    """``CDKB_CHECKPOINT_DIR``."""
    file_system_directory: str | None
    """``/<MountName>/<path>`` of the ``checkpoints`` channel; None where there is none."""
    ready: list[IDependable]
    """What must exist before a job can write there, and outlive it."""

    def sync(self) -> dict[str, Any]:
        """The request's CheckpointConfig, where SageMaker syncs local disks with S3."""
        if self.file_system_directory is not None:
            return {}
        return {
            "CheckpointConfig": {
                "S3Uri": f"{PLACEHOLDER_RUN_URI}/{CHECKPOINTS_FOLDER}/",
                "LocalPath": self.container_directory,
            }
        }


def on_local_disks() -> Checkpoints:
    """One instance: its NVMe disks, which SageMaker syncs with the run's prefix in S3."""
    return Checkpoints(
        container_directory=CONTAINER_CHECKPOINTS, file_system_directory=None, ready=[]
    )


def on_file_system(
    scope: Construct, *, file_system: ISharedFileSystem, store: ICheckpointStore, job: str
) -> Checkpoints:
    """Several instances: one folder of Lustre for all, exported to S3 by an association.

    SageMaker's own sync would send every host's files to one prefix and, at the start, the whole
    prefix to every host. The channel shows this job's folder only, in which each run has its own;
    the association makes that folder.
    """
    association = export_checkpoints(
        scope, "Checkpoints", file_system=file_system, bucket=store.bucket, job=job
    )
    return Checkpoints(
        container_directory=f"{CONTAINER_ROOT}/input/data/{CHANNEL_CHECKPOINTS}/"
        f"{PLACEHOLDER_RUN_ID}/{CHECKPOINTS_FOLDER}",
        file_system_directory=f"/{file_system.mount_name}{CHECKPOINTS_PATH}/{job}",
        ready=[association],
    )

"""Where a job writes its checkpoints: local disks synced to S3, or the shared file system."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from constructs import IDependable

from cdk_blackwell.infrastructure.file_system import CHECKPOINTS_PATH, export_checkpoints
from cdk_blackwell.lifecycle.handler.definition import PLACEHOLDER_RUN_ID, PLACEHOLDER_RUN_URI
from cdk_blackwell.planning.contracts import (
    CHANNEL_CHECKPOINTS,
    CHECKPOINTS_FOLDER,
    CONTAINER_CHECKPOINTS,
    CONTAINER_ROOT,
)

if TYPE_CHECKING:
    from cdk_blackwell.jobs.training_job import TrainingJob


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


def place_checkpoints(job: TrainingJob, *, shared: bool) -> Checkpoints:
    """On one instance its own disks, ``shared`` between several the file system."""
    return _on_file_system(job) if shared else _on_local_disks()


def _on_local_disks() -> Checkpoints:
    """NVMe disks, which SageMaker syncs with the run's prefix in S3."""
    return Checkpoints(
        container_directory=CONTAINER_CHECKPOINTS, file_system_directory=None, ready=[]
    )


def _on_file_system(job: TrainingJob) -> Checkpoints:
    """One folder of Lustre for all instances, exported to S3 by an association.

    SageMaker's own sync would send every host's files to one prefix and, at the start, the whole
    prefix to every host. The channel shows this job's folder only, in which each run has its own;
    the association makes that folder.
    """
    association = export_checkpoints(
        job,
        "Checkpoints",
        file_system=job.file_system,
        bucket=job.checkpoint_store.bucket,
        job=job.job_name,
    )
    return Checkpoints(
        container_directory=f"{CONTAINER_ROOT}/input/data/{CHANNEL_CHECKPOINTS}/"
        f"{PLACEHOLDER_RUN_ID}/{CHECKPOINTS_FOLDER}",
        file_system_directory=f"/{job.file_system.mount_name}{CHECKPOINTS_PATH}/{job.job_name}",
        ready=[association],
    )

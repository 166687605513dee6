"""All training jobs of one embedded AWS, and how they come into moto's SageMaker."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.local.sagemaker.events import Publisher
from cdk_blackwell.local.sagemaker.job import Job
from cdk_blackwell.local.sagemaker.record import JobRecord
from cdk_blackwell.local.sagemaker.settings import Emit, Settings, Timing

SHUTDOWN_SECONDS: Final = 30.0
"""How long a shutdown waits for a job's thread, which may be in the middle of a copy."""


def install(
    *,
    state_dir: Path,
    processes_per_host: int,
    emit: Emit,
    endpoint_url: Callable[[], str],
    timing: Timing | None = None,
) -> SageMakerRuntime:
    """Replace moto's training jobs by ones that run, until ``shutdown()`` of the result.

    ``state_dir`` gets ``training-jobs/<name>/``; ``processes_per_host`` is the number of training
    processes of a container on a machine without GPUs; ``emit(region, account, event)`` publishes
    an EventBridge event; ``endpoint_url()`` is where this very server answers.
    """
    from cdk_blackwell.local.sagemaker.api import patch_moto

    if processes_per_host < 1:
        raise ValueError(f"processes_per_host is {processes_per_host}; give 1 or more")
    settings = Settings(
        state_dir=state_dir.resolve(),
        processes_per_host=processes_per_host,
        emit=emit,
        endpoint_url=endpoint_url,
        timing=timing or Timing(),
    )
    runtime = SageMakerRuntime(settings=settings)
    runtime.on_shutdown = patch_moto(runtime)
    return runtime


log = logging.getLogger(__name__)


class DuplicateJobError(Exception):
    """A job of this name is there."""


class RuntimeEndedError(Exception):
    """The embedded AWS is shutting down."""


@dataclass(kw_only=True)
class SageMakerRuntime:
    """Starts jobs, knows which run, and ends them."""

    settings: Settings
    on_shutdown: Callable[[], None] = lambda: None
    _jobs: dict[str, tuple[Job, Publisher]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _is_ended: bool = False

    def create(
        self,
        *,
        request: dict[str, Any],
        body: bytes,
        account: str,
        region: str,
        register: Callable[[JobRecord], None],
    ) -> JobRecord:
        """Start a job; ``body`` is kept as ``request.json`` byte for byte.

        ``register`` makes the job known to the API, before its first event tells of it.
        """
        name: str = request["TrainingJobName"]
        with self._lock:
            if self._is_ended:
                raise RuntimeEndedError("the embedded AWS is shutting down and starts no job")
            if name in self._jobs:
                raise DuplicateJobError(self._jobs[name][0].record.arn)
            folder = self.settings.job_dir(name)
            _set_aside(folder)
            folder.mkdir(parents=True)
            (folder / "request.json").write_bytes(body)
            publisher = Publisher(
                name=name, account=account, region=region, emit=self.settings.emit
            )
            record = JobRecord(
                name=name,
                account=account,
                region=region,
                request=request,
                on_change=publisher.put,
            )
            record.merge_tags(request.get("Tags", []))
            register(record)
            record.begin()
            job = Job(record=record, settings=self.settings, folder=folder, on_end=publisher.close)
            self._jobs[name] = (job, publisher)
            job.start()
        return record

    def stop(self, name: str) -> None:
        """Ask a job to end; nothing when it is stopping already."""
        self._jobs[name][0].stop()

    def delete(self, name: str) -> None:
        """Forget a job that is over; its folder stays on disk under another name."""
        with self._lock:
            job, _ = self._jobs.pop(name)
            _set_aside(job.folder)

    def shutdown(self) -> None:
        """End every container at once and give moto its own answers back. May be repeated."""
        with self._lock:
            if self._is_ended:
                return
            self._is_ended = True
            jobs = list(self._jobs.values())
        for job, publisher in jobs:
            job.abandon()
            publisher.close(abandon=True)
        deadline = time.monotonic() + SHUTDOWN_SECONDS
        late = [
            job.record.name
            for job, _ in jobs
            if not job.join(max(0.0, deadline - time.monotonic()))
        ]
        self.on_shutdown()
        if late:
            # The rest of the server must still end; the kernel then ends what these jobs started.
            log.error("training jobs did not end in %.0f s: %s", SHUTDOWN_SECONDS, ", ".join(late))


def _set_aside(folder: Path) -> None:
    """Rename what an earlier job of the same name left, so that nothing is lost or mixed up.

    The new name holds a dot, which no job's name can.
    """
    if folder.exists():
        free = (folder.with_name(f"{folder.name}.{number}") for number in itertools.count(1))
        folder.rename(next(name for name in free if not name.exists()))

"""One training job from Starting to its end, on a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from cdk_blackwell.local.sagemaker import record as states
from cdk_blackwell.local.sagemaker.artefacts import upload_artefacts
from cdk_blackwell.local.sagemaker.channels import Inputs, check_disk, find_inputs
from cdk_blackwell.local.sagemaker.container import Container
from cdk_blackwell.local.sagemaker.errors import (
    JobFailedError,
    ServerEndingError,
    algorithm_error,
)
from cdk_blackwell.local.sagemaker.layout import ContainerRoot, container_environment
from cdk_blackwell.local.sagemaker.logs import LogPump, MetricReader
from cdk_blackwell.local.sagemaker.record import JobRecord
from cdk_blackwell.local.sagemaker.s3 import Mirror, S3Uri, list_files
from cdk_blackwell.local.sagemaker.settings import Clients, Settings
from cdk_blackwell.local.sagemaker.validation import DEFAULT_MAX_RUNTIME_SECONDS

FAILURE_FILE_LIMIT: Final = 4096
"""Characters read of output/failure; more never reaches FailureReason."""

log = logging.getLogger(__name__)


class StoppedEarlyError(Exception):
    """Somebody stopped the job before its container ran."""


@dataclass(kw_only=True)
class Job:
    """Executes one job. ``stop`` and ``abandon`` may be called from any thread."""

    record: JobRecord
    settings: Settings
    folder: Path
    on_end: Callable[[], None]
    """Called last, on the job's thread."""
    _wake: threading.Event = field(default_factory=threading.Event)
    _is_abandoned: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def start(self) -> None:
        """Run the job on its own thread."""
        self._thread = threading.Thread(
            target=self._run, name=f"job-{self.record.name}", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Ask for the end, as StopTrainingJob does."""
        self.record.stop()
        self._wake.set()

    def abandon(self) -> None:
        """The server ends: kill the container at once and change no state any more."""
        self._is_abandoned.set()
        self._wake.set()

    def join(self, timeout: float) -> bool:
        """Wait for the thread, at most ``timeout`` seconds; True when it is over."""
        if self._thread is None:
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self._run_to_a_state()
        finally:
            self.on_end()

    def _run_to_a_state(self) -> None:
        try:
            self._execute()
        except ServerEndingError:
            return
        except StoppedEarlyError:
            self.record.complete()
        except JobFailedError as failure:
            self.record.fail(str(failure))
        except Exception as error:
            if self._is_abandoned.is_set():
                return  # calls to a server that is gone
            log.exception("training job %s", self.record.name)
            self.record.fail(f"InternalServerError: the embedded AWS failed: {error!r}"[:1024])

    def _execute(self) -> None:
        clients = Clients.connect(
            endpoint_url=self.settings.endpoint_url(), region=self.record.region
        )
        root = ContainerRoot(path=self.folder / "root")
        command = _command(self.record)
        root.create(self.record)
        inputs = find_inputs(clients, self.record.request)
        checkpoints = _checkpoint_mirror(clients, self.record, root)
        check_disk(inputs.size + _size(checkpoints), self.folder)

        self._enter(states.DOWNLOADING)
        mirrors = self._fill(clients, root, inputs, checkpoints)
        self._enter(states.TRAINING)
        exit_code = self._train(clients, root, command, mirrors)

        failed = exit_code != 0 and not self.record.is_stopping
        if not failed:
            # A job that is being stopped stays in Stopping while it uploads.
            self.record.progress(states.UPLOADING)
        upload_artefacts(clients.s3, self.record, root, with_model=not failed)
        if failed:
            self.record.fail(algorithm_error(_failure_text(root), exit_code))
        else:
            self.record.complete()

    def _fill(
        self, clients: Clients, root: ContainerRoot, inputs: Inputs, checkpoints: Mirror | None
    ) -> list[Mirror]:
        mirrors = inputs.fill(clients, root.data, self._check)
        if checkpoints is None:
            return mirrors
        checkpoints.restore(self._check)
        return [checkpoints, *mirrors]

    def _train(
        self, clients: Clients, root: ContainerRoot, command: list[str], mirrors: list[Mirror]
    ) -> int:
        """Run the container to its end; returns its exit code."""
        container = Container.start(
            command=command,
            environment=container_environment(
                self.record,
                root,
                processes_per_host=self.settings.processes_per_host,
                endpoint_url=self.settings.endpoint_url(),
            ),
            cwd=root.path,
            job_dir=self.folder,
        )
        definitions = self.record.request["AlgorithmSpecification"].get("MetricDefinitions", [])
        metrics = MetricReader(definitions)
        pump = LogPump(
            logs=clients.logs,
            file=self.folder / "log.txt",
            stream=f"{self.record.name}/algo-1-{int(time.time())}",
        )

        def pump_log(*, final: bool = False) -> None:
            metrics.read(pump.pump(final=final))
            self.record.metrics = metrics.final

        try:
            exit_code = self._watch(container, pump_log, mirrors)
        finally:
            container.kill()
        for mirror in mirrors:
            mirror.push()
        pump_log(final=True)
        return exit_code

    def _watch(
        self, container: Container, pump_log: Callable[[], None], mirrors: list[Mirror]
    ) -> int:
        timing = self.settings.timing
        end_of_run = time.monotonic() + _max_runtime_seconds(self.record)
        next_sync = time.monotonic() + timing.sync_seconds
        kill_at: float | None = None
        while (exit_code := container.exit_code()) is None:
            self._wake.wait(timing.poll_seconds)
            self._wake.clear()
            if self._is_abandoned.is_set():
                raise ServerEndingError
            now = time.monotonic()
            if now >= end_of_run:
                self.record.stop(final_secondary_status=states.MAX_RUNTIME_EXCEEDED)
            if kill_at is None and self.record.is_stopping:
                container.terminate()
                kill_at = now + timing.stop_grace_seconds
            elif kill_at is not None and now >= kill_at:
                container.kill()
            pump_log()
            if now >= next_sync:
                for mirror in mirrors:
                    mirror.push()
                next_sync = time.monotonic() + timing.sync_seconds
        return exit_code

    def _enter(self, secondary_status: str) -> None:
        self._check()
        if not self.record.progress(secondary_status):
            raise StoppedEarlyError

    def _check(self) -> None:
        """Between two steps: give up when the server ends or the job is to stop."""
        if self._is_abandoned.is_set():
            raise ServerEndingError
        if self.record.is_stopping:
            raise StoppedEarlyError


def _command(record: JobRecord) -> list[str]:
    algorithm = record.request["AlgorithmSpecification"]
    if not algorithm.get("ContainerEntrypoint"):
        raise JobFailedError.client(
            "the embedded AWS runs no images, only a command: give "
            "AlgorithmSpecification.ContainerEntrypoint"
        )
    return [*algorithm["ContainerEntrypoint"], *algorithm.get("ContainerArguments", [])]


def _checkpoint_mirror(clients: Clients, record: JobRecord, root: ContainerRoot) -> Mirror | None:
    folder = root.checkpoints(record.request)
    if folder is None:
        return None
    uri = S3Uri.parse(record.request["CheckpointConfig"]["S3Uri"])
    return Mirror(
        s3=clients.s3,
        folder=folder,
        prefix=uri.folder,
        propagates_deletions=True,
        has_markers=True,
    )


def _size(mirror: Mirror | None) -> int:
    if mirror is None:
        return 0
    return sum(file.size for file in list_files(mirror.s3, mirror.prefix))


def _max_runtime_seconds(record: JobRecord) -> float:
    condition: dict[str, Any] = record.request.get("StoppingCondition", {})
    return float(condition.get("MaxRuntimeInSeconds", DEFAULT_MAX_RUNTIME_SECONDS))


def _failure_text(root: ContainerRoot) -> str:
    if not root.failure.is_file():
        return ""
    with root.failure.open(errors="replace") as file:
        return file.read(FAILURE_FILE_LIMIT)

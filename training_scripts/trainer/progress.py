"""``progress.json``: how far the run is, where the controller can read it.

Written to the run's prefix in S3 by a thread of its own, so that slow or failing S3 never holds
the training up; without S3 it is written below ``output/data``. A timer writes the last known state
again when nothing else did, so that it stays fresh during long starts, steps and exports.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cdk_blackwell.planning.contracts import PROGRESS_FILE
from cdk_blackwell.planning.records import Progress, utc_timestamp

INTERVAL_SECONDS: Final = 240.0
"""Below the five minutes of the contract, so that the writing itself is covered too."""
POLL_SECONDS: Final = 5.0


class ProgressWriter:
    """Only rank 0 makes one."""

    def __init__(
        self,
        *,
        run_uri: str | None,
        folder: Path,
        warn: Callable[..., None],
        region: str | None = None,
        interval_seconds: float = INTERVAL_SECONDS,
        poll_seconds: float = POLL_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run_uri, self._folder, self._warn, self._region = run_uri, folder, warn, region
        self._interval, self._clock = interval_seconds, clock
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="progress")
        self._pending: list[Future[None]] = []
        self._latest: Progress | None = None
        self._written_at = clock()
        self._client: Any = None
        self._lock = threading.Lock()
        """The training thread and the timer both write."""
        self._closing = threading.Event()
        self._timer = threading.Thread(
            target=self._keep_fresh, args=(poll_seconds,), name="progress-timer", daemon=True
        )
        self._timer.start()

    def note(self, progress: Progress) -> None:
        """Keep for the timer; cheap enough for every step."""
        with self._lock:
            self._latest = progress

    def write(self, progress: Progress) -> None:
        """Hand it to the thread; never raises for S3."""
        with self._lock:
            self._latest = progress
            self._submit(progress)

    def refresh(self) -> None:
        """Write the last known state again, with the time of now, when the file is too old."""
        with self._lock:
            if self._latest is None or self._clock() - self._written_at < self._interval:
                return
            self._submit(replace(self._latest, time=utc_timestamp()))

    def close(self) -> None:
        """Wait for what is under way."""
        self._closing.set()
        self._timer.join()
        self._pool.shutdown(wait=True)
        self._report_finished()

    def _keep_fresh(self, poll_seconds: float) -> None:
        while not self._closing.wait(poll_seconds):
            self.refresh()

    def _submit(self, progress: Progress) -> None:
        self._written_at = self._clock()
        self._report_finished()
        self._pending.append(self._pool.submit(self._put, progress.to_json()))

    def _report_finished(self) -> None:
        for future in [future for future in self._pending if future.done()]:
            self._pending.remove(future)
            error = future.exception()
            if error is not None:
                self._warn("progress_not_written", reason=f"{type(error).__name__}: {error}")

    def _put(self, text: str) -> None:
        if self._run_uri is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            draft = self._folder / f".{PROGRESS_FILE}.tmp"
            draft.write_text(text)
            draft.replace(self._folder / PROGRESS_FILE)
            return
        uri = urlsplit(self._run_uri)
        key = f"{uri.path.strip('/')}/{PROGRESS_FILE}"
        self._s3().put_object(
            Bucket=uri.netloc, Key=key, Body=text.encode(), ContentType="application/json"
        )

    def _s3(self) -> Any:
        if self._client is None:
            # boto3 reads AWS_ENDPOINT_URL by itself, but of the region's two variables only
            # AWS_DEFAULT_REGION, and SageMaker sets AWS_REGION.
            import boto3
            from botocore.config import Config

            patience = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 3})
            self._client = boto3.client("s3", region_name=self._region, config=patience)
        return self._client

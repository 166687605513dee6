"""``progress.json``: how far the run is, where the controller can read it.

Written to the run's prefix in S3 by a thread of its own, so that slow or failing S3 never holds
the training up; without S3 it is written below ``output/data``.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cdk_blackwell.planning.contracts import PROGRESS_FILE
from cdk_blackwell.planning.records import Progress

INTERVAL_SECONDS = 240.0
"""Below the five minutes of the contract, so that a step's length is covered too."""


class ProgressWriter:
    """Only rank 0 makes one."""

    def __init__(self, *, run_uri: str | None, folder: Path, warn: Callable[..., None]) -> None:
        self._run_uri, self._folder, self._warn = run_uri, folder, warn
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="progress")
        self._pending: list[Future[None]] = []
        self._written_at = time.monotonic()
        self._client: Any = None

    def due(self) -> bool:
        """Whether the last one is too old."""
        return time.monotonic() - self._written_at >= INTERVAL_SECONDS

    def write(self, progress: Progress) -> None:
        """Hand it to the thread; never raises for S3."""
        self._written_at = time.monotonic()
        self._report_finished()
        self._pending.append(self._pool.submit(self._put, progress.to_json()))

    def close(self) -> None:
        """Wait for what is under way."""
        self._pool.shutdown(wait=True)
        self._report_finished()

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
            # boto3 reads AWS_ENDPOINT_URL and the region by itself.
            import boto3
            from botocore.config import Config

            patience = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 3})
            self._client = boto3.client("s3", config=patience)
        return self._client

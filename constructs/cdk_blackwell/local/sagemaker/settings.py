"""What one embedded SageMaker is configured with, and the AWS clients its jobs use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config

ACCESS_KEY: Final = "testing"
"""Access key and secret of everything inside the embedded AWS; no real account knows them."""

Emit = Callable[[str, str, dict[str, Any]], None]
"""Publishes an EventBridge event: region, account, event."""


@dataclass(frozen=True, kw_only=True)
class Timing:
    """How long things take; the defaults are SageMaker's own where it documents one."""

    stop_grace_seconds: float = 120.0
    """Between SIGTERM and SIGKILL."""
    sync_seconds: float = 3.0
    """Between two synchronisations of the checkpoints while the container runs."""
    poll_seconds: float = 0.25
    """Between two looks at the container and its log."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """One embedded SageMaker."""

    state_dir: Path
    processes_per_host: int
    emit: Emit
    endpoint_url: Callable[[], str]
    timing: Timing = field(default_factory=Timing)

    def job_dir(self, name: str) -> Path:
        """Folder of one training job."""
        return self.state_dir / "training-jobs" / name


@dataclass(frozen=True, kw_only=True)
class Clients:
    """The services one job talks to, all in the embedded AWS."""

    s3: Any
    fsx: Any
    logs: Any

    @classmethod
    def connect(cls, *, endpoint_url: str, region: str) -> Clients:
        """Clients for one job; no profile and no real credentials are ever read."""
        session = boto3.session.Session(
            aws_access_key_id=ACCESS_KEY, aws_secret_access_key=ACCESS_KEY, region_name=region
        )
        config = Config(
            connect_timeout=10,
            read_timeout=120,
            retries={"mode": "standard"},
            s3={"addressing_style": "path"},
        )
        make: Any = session.client

        def client(service: str) -> Any:
            return make(service, endpoint_url=endpoint_url, config=config)

        return cls(s3=client("s3"), fsx=client("fsx"), logs=client("logs"))

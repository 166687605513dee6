"""What every part of the embedded AWS shares: where it listens and how to call it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3
from botocore.config import Config

ACCOUNT: Final = "123456789012"
ACCESS_KEY: Final = "testing"
SECRET_KEY: Final = "testing"


@dataclass(kw_only=True)
class World:
    """One embedded AWS."""

    endpoint: str
    """``http://localhost:<port>``."""
    state_dir: Path
    account: str = ACCOUNT
    _clients: dict[tuple[str, str], Any] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def client(self, service: str, region: str) -> Any:
        """A boto3 client against ourselves; made once, boto3 clients may be shared by threads."""
        with self._lock:
            key = (service, region)
            if key not in self._clients:
                session: Any = boto3.session.Session(
                    aws_access_key_id=ACCESS_KEY,
                    aws_secret_access_key=SECRET_KEY,
                    region_name=region,
                )
                self._clients[key] = session.client(
                    service,
                    endpoint_url=self.endpoint,
                    config=Config(retries={"total_max_attempts": 1}, read_timeout=900),
                )
            return self._clients[key]

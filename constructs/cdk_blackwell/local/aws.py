"""The embedded AWS for its users: a context manager around the server process."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from cdk_blackwell.local.world import ACCESS_KEY, ACCOUNT, SECRET_KEY

READY_SECONDS: Final = 90.0
"""Importing moto takes 1.5-3 s on a quiet machine."""
STOP_SECONDS: Final = 45.0
_PASSED_ON: Final = ("PATH", "LANG", "LC_ALL", "TERM", "TMPDIR", "VIRTUAL_ENV", "PYTHONPATH")


class LocalAwsError(RuntimeError):
    """The embedded AWS did not start; one clear line."""


class LocalAws:
    """Runs the embedded AWS; use it in a ``with`` statement, or call ``close`` yourself.

    ``state_dir`` gets the server's log, training jobs and unpacked functions. ``port`` 0 takes a
    free one. ``processes_per_host`` is the number of training processes of one container.
    """

    def __init__(
        self,
        *,
        state_dir: Path,
        port: int = 0,
        region: str = "us-west-2",
        processes_per_host: int = 2,
    ) -> None:
        self.state_dir = Path(state_dir).resolve()
        self.region = region
        self.account = ACCOUNT
        self.log = self.state_dir / "server.log"
        self._clients: dict[str, Any] = {}
        self._process: subprocess.Popen[str] | None = None
        command = [sys.executable, "-m", "cdk_blackwell.local.server"]
        command += ["--port", str(port), "--state-dir", str(self.state_dir)]
        command += ["--processes-per-host", str(processes_per_host)]
        try:
            self.home = self.state_dir / "home"
            self.home.mkdir(parents=True, exist_ok=True)
            with self.log.open("w") as log:
                self._process = subprocess.Popen(
                    command,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    stdin=subprocess.DEVNULL,
                    text=True,
                    env=self._base_environment(),
                    # Ctrl-C in the terminal is for the caller, who then closes us in order.
                    start_new_session=True,
                )
        except OSError as error:
            raise LocalAwsError(
                f"the embedded AWS cannot use {self.state_dir}: {error.strerror}"
            ) from None
        try:
            self.endpoint_url = self._wait_until_ready()
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """Process id of the server."""
        assert self._process is not None
        return self._process.pid

    def environment(self) -> dict[str, str]:
        """The whole environment for a child process that talks to this AWS and to no other."""
        return {
            **self._base_environment(),
            "AWS_ENDPOINT_URL": self.endpoint_url,
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
            "CDK_DEFAULT_ACCOUNT": self.account,
            "CDK_DEFAULT_REGION": self.region,
        }

    def client(self, service: str) -> Any:
        """A boto3 client of this AWS."""
        if service not in self._clients:
            import boto3

            session: Any = boto3.session.Session(
                aws_access_key_id=ACCESS_KEY,
                aws_secret_access_key=SECRET_KEY,
                region_name=self.region,
            )
            self._clients[service] = session.client(service, endpoint_url=self.endpoint_url)
        return self._clients[service]

    def close(self) -> None:
        """End the server and every container it started; once is enough, twice does no harm."""
        process = self._process
        if process is None:
            return
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if process.stdout is not None:
            process.stdout.close()

    def __enter__(self) -> LocalAws:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _base_environment(self) -> dict[str, str]:
        passed = {key: os.environ[key] for key in _PASSED_ON if key in os.environ}
        return {
            **passed,
            "HOME": str(self.home),
            "AWS_CONFIG_FILE": str(self.home / "aws-config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(self.home / "aws-credentials"),
        }

    def _wait_until_ready(self) -> str:
        process = self._process
        assert process is not None
        assert process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        stdout = process.stdout
        threading.Thread(target=lambda: lines.put(stdout.readline()), daemon=True).start()
        try:
            line = lines.get(timeout=READY_SECONDS)
        except queue.Empty:
            raise LocalAwsError(
                f"the embedded AWS was not ready after {READY_SECONDS:.0f} s; see {self.log}"
            ) from None
        if not line:
            process.wait()
            said = self.log.read_text().strip().splitlines()
            raise LocalAwsError(
                said[-1] if said else f"the embedded AWS ended with status {process.returncode}"
            )
        return str(json.loads(line)["endpoint"])

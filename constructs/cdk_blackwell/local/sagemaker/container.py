"""One running container: its processes, its exit code and how it is ended."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Final

from cdk_blackwell.local.sagemaker import container_init

KILL_SECONDS: Final = 10.0
"""How long the kernel may take to end a killed container."""


class Container:
    """A started container. Must be started, watched and ended from one thread.

    The kernel tells :mod:`container_init` about the death of the *thread* that started it, so
    that thread has to live as long as the container.
    """

    def __init__(self, process: subprocess.Popen[bytes], pid: int | None) -> None:
        self._process = process
        self.pid = pid
        """The first process inside; None when it could not be started."""

    @classmethod
    def start(
        cls, *, command: list[str], environment: dict[str, str], cwd: Path, job_dir: Path
    ) -> Container:
        """Start ``command`` with exactly ``environment``; output goes to ``job_dir/log.txt``.

        ``job_dir/container.json`` then holds the first process's ``pid`` and when it ``started``
        (seconds since the epoch).
        """
        read_end, write_end = os.pipe()
        try:
            with (job_dir / "log.txt").open("ab") as log:
                # -I and -S: only the standard library, and nothing of the container's
                # environment changes how this Python starts.
                process = subprocess.Popen(
                    [
                        sys.executable,
                        "-I",
                        "-S",
                        container_init.__file__,
                        str(write_end),
                        str(os.getpid()),
                        *command,
                    ],
                    env=environment,
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    pass_fds=(write_end,),
                )
        finally:
            os.close(write_end)
        with os.fdopen(read_end) as ready:
            line = ready.readline()
        pid = int(line) if line else None
        if pid is not None:
            (job_dir / "container.json").write_text(
                json.dumps({"pid": pid, "started": time.time()}) + "\n"
            )
        return cls(process, pid)

    def exit_code(self) -> int | None:
        """None while it runs; 128 + signal when a signal ended the first process."""
        code = self._process.poll()
        return code if code is None or code >= 0 else 128 - code

    def terminate(self) -> None:
        """SIGTERM to the first process, as SageMaker does at a stop."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGUSR1)

    def kill(self) -> None:
        """SIGKILL to every process of the container; returns when all are gone."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(KILL_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

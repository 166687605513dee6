"""Child processes that never outlive the demo, with their output kept and shown."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

TERMINATE_SECONDS = 10.0


def run_logged(
    command: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    log: Path,
    on_line: Callable[[str], None] = lambda line: None,
) -> int:
    """Run to the end, writing all output to ``log``; returns the exit status.

    ``on_line`` sees every line as it comes. When the caller is interrupted, the command and
    everything it started is ended first.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("w") as sink:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        try:
            assert process.stdout is not None
            for line in process.stdout:
                sink.write(line)
                sink.flush()
                on_line(line.rstrip())
            return process.wait()
        finally:
            end_tree(process.pid)
            process.wait()


def end_tree(pid: int) -> None:
    """Terminate a process and all its descendants, then kill what stays."""
    with suppress(psutil.NoSuchProcess):
        parent = psutil.Process(pid)
        family = [*parent.children(recursive=True), parent]
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
        _, alive = psutil.wait_procs(family, timeout=TERMINATE_SECONDS)
        for process in alive:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(alive, timeout=TERMINATE_SECONDS)


def processes_below(folder: Path) -> list[psutil.Process]:
    """Live processes whose command line or working directory lies in ``folder``."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            if process.pid == psutil.Process().pid or process.status() == psutil.STATUS_ZOMBIE:
                continue
            words = [process.cwd(), *process.cmdline()]
            if any(str(folder) in word for word in words):
                found.append(process)
    return found

"""The parent of a container's first process, which lets nothing of the container survive.

Run as a script: ``container_init.py <ready fd> <server pid> <command> ...``. Standard library
only, so that it starts at once. Worker processes of a training job open sessions of their own,
therefore killing a process group is not enough: this process adopts every orphan below it
(subreaper) and kills all of them when the first process ends, when the server asks, and when the
server dies.

* SIGUSR1: pass SIGTERM on to the container's first process.
* SIGTERM: kill everything now.

It writes the first process's pid and a newline to the ready fd, then ends with that process's
exit code (128 + signal when a signal ended it). Linux only.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_SIGNALS = frozenset({signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD})
KILLED = 128 + signal.SIGKILL
NOT_STARTED = 127


def main(arguments: list[str]) -> int:
    """Run the command; returns the exit code."""
    ready, server, command = int(arguments[0]), int(arguments[1]), arguments[2:]
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != server:  # the server died before it could be watched
        return KILLED
    try:
        first = subprocess.Popen(command, start_new_session=True, preexec_fn=_prepare_child)
    except OSError as error:
        print(f"cannot start {command[0]!r}: {error}", file=sys.stderr, flush=True)
        return NOT_STARTED
    os.write(ready, f"{first.pid}\n".encode())
    os.close(ready)
    try:
        return _supervise(first.pid)
    finally:
        _kill_everything()


def _prepare_child() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _supervise(first: int) -> int:
    while True:
        received = signal.sigwait(_SIGNALS)
        if received == signal.SIGTERM:
            return KILLED
        if received == signal.SIGUSR1:
            os.kill(first, signal.SIGTERM)  # not reaped yet, so the pid is still its own
            continue
        code = _reap(first)
        if code is not None:
            return code


def _reap(first: int) -> int | None:
    """Collect every ended child; the exit code once ``first`` is among them."""
    while True:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return None
        if pid == first:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


def _kill_everything() -> None:
    """Until no child is left; orphans become children here, so then no descendant is left."""
    while True:
        for pid in _descendants(os.getpid()):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                # "pid (name) state ppid ...": the name may hold spaces and brackets.
                fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, value, 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

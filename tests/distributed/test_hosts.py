"""Several hosts on this machine, each with a container tree, a launcher and a torchrun of its own.

Loopback addresses stand for hosts; the checkpoint folder is shared, as a file system is on AWS.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

import launch
from cdk_blackwell.planning.contracts import Failure
from cdk_blackwell.planning.run_spec import RunSpec
from tests.training_scripts.tiny import tiny_spec, write_container

PATIENCE_SECONDS = 240
HOSTS = ("127.0.0.1", "127.0.0.2")


class Host:
    """One host's container."""

    def __init__(self, address: str, spec: RunSpec, folder: Path, *, port: int) -> None:
        self.root = write_container(folder / address, spec)
        config = {"current_host": address, "hosts": HOSTS, "network_interface_name": "lo"}
        path = self.root / "input" / "config" / "resourceconfig.json"
        path.write_text(json.dumps(config))
        self.log = self.root / "log.txt"
        with self.log.open("w") as sink:
            self.process = subprocess.Popen(
                [sys.executable, launch.__file__],
                env={
                    **os.environ,
                    "CDKB_ROOT": str(self.root),
                    "CDKB_CHECKPOINT_DIR": str(folder / "shared"),
                    "MASTER_PORT": str(port),
                },
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def records(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def events(self, name: str) -> list[dict[str, Any]]:
        return [record for record in self.records() if record.get("event") == name]

    def wait_for(self, condition: Callable[[], Any]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def wait_for_more(self, read: Callable[[], Sequence[Any]], least: int) -> None:
        self.wait_for(lambda: len(read()) >= least)

    def reached(self, step: int) -> bool:
        return any(record.get("step", 0) >= step for record in self.records())

    def rank(self) -> psutil.Process:
        children = psutil.Process(self.process.pid).children(recursive=True)
        (rank,) = (child for child in children if "LOCAL_RANK" in child.environ())
        return rank

    def stack(self) -> str:
        """What the log shows from the request for the rank's stack on."""
        _, asked, after = self.log.read_text().partition('"event": "stacks"')
        assert asked, "no stack was asked for"
        return after

    def failure(self) -> Failure | None:
        path = self.root / "output" / "failure"
        return Failure.find(path.read_text()) if path.exists() else None

    def end(self) -> None:
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def started(spec: RunSpec, folder: Path) -> Iterator[tuple[Host, Host]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    hosts = [Host(address, spec, folder, port=port) for address in HOSTS]
    try:
        yield hosts[0], hosts[1]
    finally:
        for host in hosts:
            host.end()


@pytest.mark.slow
def test_hosts_stop_resume_restart_in_place_and_give_up_together(tmp_path: Path) -> None:
    changes = {"in_cluster_restarts": 3, "log_interval_steps": 5}
    spec = tiny_spec(steps=1_000_000, limits=changes)
    with started(spec, tmp_path) as hosts:
        first, second = hosts
        first.wait_for(lambda: first.reached(10))
        for host in hosts:
            host.process.send_signal(signal.SIGTERM)
        assert [host.process.wait(PATIENCE_SECONDS) for host in hosts] == [0, 0]
    (stop,) = first.events("stopped")
    assert [host.failure() for host in hosts] == [None, None]

    with started(spec, tmp_path) as hosts:
        first, second = hosts
        # A killed rank is started again on both hosts, from the checkpoint; torchrun would do so
        # three times, but a second time without a new checkpoint is refused.
        for number in (1, 2):
            first.wait_for_more(partial(first.events, "resumed"), number)
            first.wait_for_more(first.records, len(first.records()) + 2)
            second.rank().kill()
        assert [host.process.wait(PATIENCE_SECONDS) for host in hosts] == [1, 1]
    assert [event["step"] for event in first.events("resumed")[:2]] == [stop["step"]] * 2
    failures = [host.failure() for host in hosts]
    for failure in failures:
        assert failure is not None
        assert failure.kind == "infrastructure"
        assert "restart 1 in the cluster completed no checkpoint" in failure.message


@pytest.mark.slow
def test_the_host_with_the_cause_speaks_for_all(tmp_path: Path) -> None:
    # Four times as long for a start: a busy machine takes its time over importing torch.
    spec = tiny_spec(steps=1_000_000, limits={"hang_seconds": 8.0})
    with started(spec, tmp_path) as hosts:
        first, second = hosts
        first.wait_for(lambda: first.reached(10))
        second.rank().suspend()
        second.wait_for(lambda: second.events("stacks"))
        assert [host.process.wait(PATIENCE_SECONDS) for host in hosts] == [1, 1]
    for host in hosts:
        failure = host.failure()
        assert failure is not None
        assert failure.kind == "infrastructure"
        assert "no rank of this host came forward" in failure.message
    # Where it waits for the other is chance: in a step, or between two of them.
    assert "loop.py" in first.stack(), "the stack of the rank that waits"

"""The launcher with the real torchrun: stop by SIGTERM, resume, lose a rank."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

import launch
from cdk_blackwell.planning.contracts import Failure
from tests.training_scripts.tiny import SEQUENCE_LENGTH, tiny_spec, write_container

PATIENCE_SECONDS = 120


class Job:
    """One attempt as SageMaker would run it."""

    def __init__(self, root: Path, *, own_session: bool = False) -> None:
        self.root = root
        self.log = root / "log.txt"
        with self.log.open("w") as sink:
            self.process = subprocess.Popen(
                [sys.executable, launch.__file__],
                env={**os.environ, "CDKB_ROOT": str(root), "CDKB_PROCESSES_PER_HOST": "2"},
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=own_session,
            )

    def records(self) -> list[dict[str, Any]]:
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{") and line.endswith("}")]

    def wait_for(self, condition: Callable[[dict[str, Any]], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not any(condition(record) for record in self.records()):
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)

    def ranks(self) -> list[psutil.Process]:
        return [
            child
            for child in psutil.Process(self.process.pid).children(recursive=True)
            if "LOCAL_RANK" in child.environ()
        ]

    def torchrun(self) -> psutil.Process:
        (process,) = psutil.Process(self.process.pid).children()
        return process

    def end(self) -> None:
        if self.process.poll() is None:
            for child in psutil.Process(self.process.pid).children(recursive=True):
                child.kill()
            self.process.kill()
            self.process.wait()


@pytest.mark.slow
def test_stop_resume_and_a_lost_rank(tmp_path: Path) -> None:
    root = write_container(tmp_path, tiny_spec(steps=100_000, limits={"log_interval_steps": 5}))
    stopped = Job(root)
    try:
        stopped.wait_for(lambda record: record.get("step", 0) >= 10)
        stopped.process.send_signal(signal.SIGTERM)
        assert stopped.process.wait(PATIENCE_SECONDS) == 0, stopped.log.read_text()
    finally:
        stopped.end()
    (stop,) = (r for r in stopped.records() if r.get("event") == "stopped")
    assert not (root / "output" / "failure").exists()

    killed = Job(root)
    try:
        killed.wait_for(lambda record: record.get("step", 0) > stop["step"])
        (resumed,) = (r for r in killed.records() if r.get("event") == "resumed")
        assert resumed["step"] == stop["step"]
        for rank in killed.ranks():
            rank.kill()
        assert killed.process.wait(PATIENCE_SECONDS) == 1
    finally:
        killed.end()
    failure = Failure.find((root / "output" / "failure").read_text())
    assert failure is not None
    assert failure.kind == "infrastructure"
    assert failure.step > stop["step"]


@pytest.mark.slow
def test_one_failing_rank_ends_all_with_its_reason(tmp_path: Path) -> None:
    """Only the rank that reads the bad token fails; the other one waits for it in a collective."""
    root = write_container(tmp_path, tiny_spec(steps=100_000))
    dataset = root / "input" / "data" / "dataset"
    shard = dataset / "train-00000.bin"
    content = bytearray(shard.read_bytes())
    content[2 * (SEQUENCE_LENGTH + 3)] = 255
    shard.write_bytes(content)
    manifest = json.loads((dataset / "manifest.json").read_text())
    manifest["splits"]["train"][0]["sha256"] = hashlib.sha256(content).hexdigest()
    (dataset / "manifest.json").write_text(json.dumps(manifest))

    job = Job(root)
    try:
        assert job.process.wait(PATIENCE_SECONDS) == 1, job.log.read_text()
    finally:
        job.end()
    failure = Failure.find((root / "output" / "failure").read_text())
    assert failure is not None
    assert failure.kind == "data"
    assert "holds token id 255" in failure.message


@pytest.mark.slow
def test_a_ctrl_c_at_a_terminal_saves_the_last_step(tmp_path: Path) -> None:
    """A terminal sends SIGINT to the whole group in its foreground, not to the launcher alone."""
    root = write_container(tmp_path, tiny_spec(steps=100_000, limits={"log_interval_steps": 5}))
    job = Job(root, own_session=True)
    try:
        job.wait_for(lambda record: record.get("step", 0) >= 10)
        torchrun = job.torchrun().pid
        assert os.getpgid(torchrun) == torchrun, "else it answers too, and breaks off the save"
        os.killpg(job.process.pid, signal.SIGINT)
        assert job.process.wait(PATIENCE_SECONDS) == 0, job.log.read_text()
    finally:
        job.end()
    (stop,) = (r for r in job.records() if r.get("event") == "stopped")
    assert stop["last_complete_step"] == stop["step"] >= 10


@pytest.mark.slow
def test_ranks_do_not_outlive_a_torchrun_that_was_killed(tmp_path: Path) -> None:
    root = write_container(tmp_path, tiny_spec(steps=100_000, limits={"log_interval_steps": 5}))
    job = Job(root)
    try:
        job.wait_for(lambda record: record.get("step", 0) >= 10)
        ranks = job.ranks()
        job.torchrun().kill()
        assert job.process.wait(PATIENCE_SECONDS) == 1, job.log.read_text()
        _, alive = psutil.wait_procs(ranks, timeout=PATIENCE_SECONDS)
        assert not alive
    finally:
        job.end()
    failure = Failure.find((root / "output" / "failure").read_text())
    assert failure is not None
    assert failure.kind == "infrastructure"
    assert "ended with torchrun, which signal 9 (Killed) ended" in failure.message

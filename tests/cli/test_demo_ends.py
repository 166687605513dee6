"""However the demo ends, nothing it started is left: interrupted, refused a port, or failed."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cdk_blackwell.cli.demo.processes import processes_below

pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]

ROOT = Path(__file__).parent.parent.parent
COMMAND = [sys.executable, "-c", "from cdk_blackwell.cli.entry import main; main()", "demo"]


def wait_until_gone(folder: Path) -> list[psutil.Process]:
    deadline = time.monotonic() + 20
    while (left := processes_below(folder)) and time.monotonic() < deadline:
        time.sleep(0.2)
    return left


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "sign",
    [
        "logs/prepare_data.log",
        "logs/cdk-bootstrap.log",
        "aws/training-jobs/*/*/checkpoints/step-*",
    ],
)
def test_an_interrupted_demo_leaves_no_process_and_says_so(
    tmp_path: Path, end: signal.Signals, sign: str
) -> None:
    folder = tmp_path / "demo"
    demo = subprocess.Popen(
        [*COMMAND, "--directory", str(folder)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    deadline = time.monotonic() + 240
    while not any(folder.glob(sign)):
        assert demo.poll() is None, demo.communicate()[0]
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(1)
    demo.send_signal(end)
    output, _ = demo.communicate(timeout=60)

    assert demo.returncode == 130
    assert "interrupted" in output
    assert "Traceback" not in output
    assert wait_until_gone(folder) == []
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["completed"] is False
    assert summary["error"] == "KeyboardInterrupt"


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        done = subprocess.run(
            [*COMMAND, "--port", str(port), "--directory", str(tmp_path / "demo")],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert str(port) in done.stderr
    assert "Traceback" not in done.stderr + done.stdout
    assert wait_until_gone(tmp_path / "demo") == []

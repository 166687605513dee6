"""One plan on every terminal, and on none that takes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdk_blackwell.cli.main import app

PLAN = ("plan", "--model", "llama-3.1-8b", "--nodes", "4", "--explain", "--details")


@pytest.mark.parametrize("columns", ["0", "1", "40", "500", "wide"])
def test_the_screen_is_the_same_on_every_terminal(columns: str) -> None:
    at_80 = CliRunner(env={"COLUMNS": "80"}).invoke(app, PLAN).stdout
    assert "node-hours" in at_80
    assert CliRunner(env={"COLUMNS": columns}).invoke(app, PLAN).stdout == at_80


def test_a_full_disk_is_one_line() -> None:
    program = "from cdk_blackwell.cli.entry import main; main()"
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", program, *PLAN],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert "the output cannot be written: No space left on device" in done.stderr
    assert "Traceback" not in done.stderr

"""The guide shows commands that work and pictures that the command draws."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdk_blackwell.cli.main import app

DOCS = Path(__file__).parents[3] / "docs"
GUIDE = (DOCS / "planning.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^cdk-blackwell (plan .*)$", GUIDE, re.MULTILINE)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_of_the_guide_works(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused = command.endswith("--activation-checkpointing none")
    done = CliRunner().invoke(app, shlex.split(command))
    assert done.exit_code == 0 or (refused and type(done.exception).__name__ == "RefusedError")


def test_pictures_are_small_and_there() -> None:
    for name in re.findall(r"\]\((\S+\.svg)\)", GUIDE):
        assert 1000 < (DOCS / name).stat().st_size < 200_000

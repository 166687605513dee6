"""Set-up fails with one clear line that names the missing tool and the remedy."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    for name in ("Makefile", "requirements.txt", "pyproject.toml", "package.json"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with the shell's basics only."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for tool in ("bash", "sh", "rm", "mkdir", "touch", "env", "git", "printf", "make"):
        found = shutil.which(tool)
        assert found is not None
        (folder / tool).symlink_to(found)
    return folder


def setup(checkout: Path, tools: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(tools / "make"), "setup", *words],
        cwd=checkout,
        env={"PATH": str(tools), "HOME": str(checkout)},
        capture_output=True,
        text=True,
        check=False,
    )


def script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_fails_without_python_and_names_the_package(checkout: Path, tools: Path) -> None:
    done = setup(checkout, tools)
    assert done.returncode != 0
    assert "setup: python3 is missing: install it with 'apt-get install python3" in done.stderr


def test_fails_without_git_and_names_the_package(checkout: Path, tools: Path) -> None:
    (tools / "git").unlink()
    done = setup(checkout, tools)
    assert "setup: git is missing: install it with 'apt-get install git'" in done.stderr


def test_fails_on_an_old_python_and_names_the_version(checkout: Path, tools: Path) -> None:
    script(tools / "python3", '[ "$1" = -V ] && echo Python 3.9.2 && exit 0; exit 1')
    done = setup(checkout, tools)
    assert "setup: python3 is Python 3.9.2; Python 3.11 or newer is needed" in done.stderr


def test_fails_without_venv_and_names_the_package(checkout: Path, tools: Path) -> None:
    script(tools / "python3", 'case "$2" in *ensurepip*) exit 1;; esac')
    done = setup(checkout, tools)
    assert "setup: Python has no venv module: install it with" in done.stderr
    assert not (checkout / ".venv").exists()

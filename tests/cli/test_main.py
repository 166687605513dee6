"""How commands end: one line and a documented exit code, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent


def command(*words: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from cdk_blackwell.cli.entry import main; main()", *words],
        capture_output=True,
        text=True,
        cwd=folder,
        check=False,
    )


@pytest.mark.parametrize(
    "words",
    [("demo", "--port", "banana"), ("demo", "--port", "70000"), ("demo", "--bogus"), ("train",)],
)
def test_bad_usage_ends_with_2(words: tuple[str, ...]) -> None:
    done = command(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_an_expected_mistake_is_one_line_on_stderr(tmp_path: Path) -> None:
    done = command("demo", folder=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("cdk-blackwell: ")
    assert "clone of the repository" in done.stderr.replace("\n", " ")
    assert "Traceback" not in done.stderr


def test_the_version_comes_from_its_one_place() -> None:
    from cdk_blackwell._version import __version__

    assert command("--version").stdout.strip() == __version__


def test_without_its_extra_the_command_says_what_to_install() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-c"),
            "import sys; sys.modules['typer'] = None\n"
            "from cdk_blackwell.cli.entry import main; main()",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.strip() == (
        "cdk-blackwell: the command line needs typer: pip install 'cdk-blackwell[cli]'"
    )

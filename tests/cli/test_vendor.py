"""``cdk-blackwell vendor`` fetches exactly the locked wheels, or nothing."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from cdk_blackwell.bundle import find_wheels, locked_wheels
from cdk_blackwell.cli import vendor
from cdk_blackwell.cli.errors import CommandError


def completed(code: int, stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess(args=[], returncode=code, stdout="", stderr=stderr)


def test_wheels_are_asked_for_by_hash_for_the_containers_python(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[list[str]] = []

    def pip(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        asked.append(command)
        Path(command[command.index("--dest") + 1], "safetensors-0.8.0-any.whl").touch()
        return completed(0)

    monkeypatch.setattr(subprocess, "run", pip)
    vendor.vendor(tmp_path / "wheelhouse", quiet=True)

    (command,) = asked
    assert "--require-hashes" in command
    assert command[command.index("--python-version") + 1] == "3.12"
    assert [path.name for path in (tmp_path / "wheelhouse").iterdir()] == [
        "safetensors-0.8.0-any.whl"
    ]


def test_a_failing_fetch_says_why_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        subprocess,
        "run",
        lambda *_, **__: completed(1, "WARNING: x\nERROR: No matching distribution found\n"),
    )
    with pytest.raises(CommandError, match="No matching distribution"):
        vendor.vendor(tmp_path / "wheelhouse", quiet=True)
    assert not (tmp_path / "wheelhouse").exists()


@pytest.mark.slow
def test_the_lock_resolves_for_the_containers_python_and_platform(tmp_path: Path) -> None:
    vendor.vendor(tmp_path, quiet=True)

    packages = locked_wheels()
    wheels = find_wheels(tmp_path, packages)
    assert len(wheels) == len(packages) == len(list(tmp_path.iterdir()))
    platforms = ["manylinux_2_28_x86_64", "manylinux2014_x86_64"]
    of_python = cpython_tags((3, 12), platforms=platforms)
    container = {str(tag) for tag in (*of_python, *compatible_tags((3, 12), platforms=platforms))}
    for wheel in wheels:
        *_, tags = parse_wheel_filename(wheel.name)
        assert {str(tag) for tag in tags} & container

"""The tree keeps its shape: the traps a folder named ``constructs`` sets, and who imports whom."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "constructs" / "cdk_blackwell"


def run_python(code: str, *, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_constructs_is_a_source_root_and_not_a_package() -> None:
    assert not (ROOT / "constructs" / "__init__.py").exists()


def test_the_cdk_library_constructs_is_the_one_imported_from_the_root() -> None:
    found = run_python("import constructs; print(constructs.__file__)", folder=ROOT)
    assert Path(found).is_relative_to(sysconfig.get_path("purelib"))


def test_the_package_cannot_be_imported_by_a_second_name() -> None:
    with pytest.raises(ImportError, match="import cdk_blackwell"):
        importlib.import_module("constructs.cdk_blackwell")


@pytest.mark.parametrize("module", ["cdk_blackwell", "cdk_blackwell.planning"])
def test_planning_needs_neither_the_cdk_nor_torch(module: str) -> None:
    heavy = run_python(
        f"import {module}, sys; "
        "print([m for m in ('aws_cdk', 'constructs', 'torch', 'boto3') if m in sys.modules])",
        folder=ROOT,
    )
    assert heavy == "[]"


def test_imports_run_one_way() -> None:
    """The contracts stand in pyproject.toml, under import-linter."""
    done = subprocess.run(
        [Path(sys.executable).parent / "lint-imports", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": "constructs:training_scripts:."},
    )
    assert done.returncode == 0, done.stdout


def test_types_are_published() -> None:
    assert (PACKAGE / "py.typed").exists()


def test_files_stay_short_enough_to_read() -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "*.py"], capture_output=True, text=True, check=True, cwd=ROOT
    ).stdout.split()
    long = {name for name in tracked if len((ROOT / name).read_text().splitlines()) > 400}
    assert not long


def test_the_lock_of_the_command_line_names_no_registry() -> None:
    assert '"resolved"' not in (ROOT / "package-lock.json").read_text()


def test_every_requirement_is_pinned_and_the_promised_ones_are_there() -> None:
    lines = [
        line
        for line in (ROOT / "requirements.txt").read_text().splitlines()
        if line and not line.startswith("#")
    ]
    names = {line.split("==")[0] for line in lines if "==" in line}
    assert len(names) == len(lines)
    assert {"aws-cdk-lib", "constructs", "sagemaker", "boto3", "pytest", "cdk-nag"} <= names

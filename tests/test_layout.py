"""The tree keeps its shape: the traps a folder named ``constructs`` sets, and who imports whom."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "constructs" / "cdk_blackwell"

ALLOWED_IMPORTS = {
    "planning": {"planning"},
    "compliance": {"compliance", "planning"},
    "infrastructure": {"infrastructure", "compliance", "planning"},
    "lifecycle": {"lifecycle", "infrastructure", "compliance", "planning"},
    "jobs": {"jobs", "lifecycle", "infrastructure", "compliance", "planning"},
    "local": {"local", "planning", "lifecycle", "compliance"},
    "testing": {"testing", "jobs", "lifecycle", "compliance", "planning"},
    "cli": {"cli", "local", "jobs", "lifecycle", "infrastructure", "compliance", "planning"},
}
"""Imports run one way; ``planning`` is carried by the Lambda and the bundle, so it stands alone."""


def imported_modules(path: Path) -> set[str]:
    modules = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            modules.add(node.module)
    return modules


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


@pytest.mark.parametrize("part", sorted(ALLOWED_IMPORTS))
def test_imports_run_one_way(part: str) -> None:
    wrong = {
        f"{path.relative_to(PACKAGE)}: {module}"
        for path in (PACKAGE / part).rglob("*.py")
        for module in imported_modules(path)
        if module.startswith("cdk_blackwell.")
        and (PACKAGE / module.split(".")[1]).is_dir()
        and module.split(".")[1] not in ALLOWED_IMPORTS[part]
    }
    assert not wrong


def test_the_trainer_shares_only_planning_with_the_constructs() -> None:
    wrong = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in (ROOT / "training_scripts").rglob("*.py")
        for module in imported_modules(path)
        if module.startswith("cdk_blackwell") and not module.startswith("cdk_blackwell.planning")
    }
    assert not wrong


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


def test_what_the_readme_links_to_exists() -> None:
    links = re.findall(r"\]\(([^)#]+)\)", (ROOT / "README.md").read_text())
    missing = [link for link in links if "://" not in link and not (ROOT / link).exists()]
    assert links
    assert not missing

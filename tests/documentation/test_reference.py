"""The reference is whole: every public name, every command."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import cdk_blackwell
import cdk_blackwell.testing

DOCS = Path(__file__).parents[2] / "docs"
RENDERED = {
    path.rsplit(".", 1)[1]: path
    for page in (DOCS / "reference").glob("*.md")
    for path in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)
}


@pytest.mark.parametrize("name", [n for n in cdk_blackwell.__all__ if n != "__version__"])
def test_a_public_name_is_on_a_page(name: str) -> None:
    value = getattr(cdk_blackwell, name)
    assert RENDERED[name] == f"{value.__module__}.{name}"


@pytest.mark.parametrize("name", cdk_blackwell.testing.__all__)
def test_so_is_what_tests_use(name: str) -> None:
    value = getattr(cdk_blackwell.testing, name)
    assert RENDERED[name] == f"{value.__module__}.{name}"


def test_the_commands_are_those_of_the_program() -> None:
    script = runpy.run_path(str(DOCS / "cli_reference.py"))
    page = (DOCS / "reference" / "cli.md").read_text()
    assert page == script["document"](), "run: python docs/cli_reference.py"

"""The reference is whole: every public name, every command."""

from __future__ import annotations

import inspect
import re
import runpy
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType

import pytest
from constructs import Construct

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


def public_members() -> Iterator[tuple[str, object]]:
    """Methods, properties and functions that the reference shows."""
    for name in cdk_blackwell.__all__:
        value = getattr(cdk_blackwell, name)
        if inspect.isfunction(value):
            yield name, value
        elif inspect.isclass(value):
            for member, found in vars(value).items():
                if not member.startswith("_") and isinstance(
                    found, (FunctionType, staticmethod, classmethod, property)
                ):
                    yield f"{name}.{member}", found


@pytest.mark.parametrize(("name", "member"), list(public_members()))
def test_it_is_described(name: str, member: object) -> None:
    assert inspect.getdoc(member), name


CONSTRUCTS = [
    value
    for value in (getattr(cdk_blackwell, name) for name in cdk_blackwell.__all__)
    if inspect.isclass(value) and issubclass(value, Construct) and "__init__" in vars(value)
]


@pytest.mark.parametrize("construct", CONSTRUCTS, ids=lambda each: each.__name__)
def test_every_parameter_of_a_construct_is_described(construct: type) -> None:
    given = set(inspect.signature(vars(construct)["__init__"]).parameters)
    described = set(re.findall(r":param (\w+):", inspect.getdoc(construct) or ""))
    assert given - {"self", "scope", "construct_id"} == described


@pytest.mark.parametrize(
    ("page", "script"), [("cli.md", "cli_reference.py"), ("run.md", "run_reference.py")]
)
def test_a_made_page_is_in_step_with_the_program(page: str, script: str) -> None:
    made = runpy.run_path(str(DOCS / script))["document"]()
    assert (DOCS / "reference" / page).read_text() == made, f"run: python docs/{script}"

"""The drawn pictures are what their scripts draw today; those of plans are drawn by a command."""

from __future__ import annotations

import runpy
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cdk_blackwell.cli.plan.charts.save import save_chart
from docs.measured import picture

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", ["architecture", "life-of-a-run"])
def test_it_is_in_step_with_its_script(name: str) -> None:
    script = runpy.run_path(str(DOCS / "diagrams.py"))
    drawn = script[name.replace("-", "_")]()
    assert (DOCS / f"{name}.svg").read_text() == drawn, "run: python docs/diagrams.py"


def test_the_figures_drawn_are_those_recorded(tmp_path: Path) -> None:
    save_chart(picture(), tmp_path / "measured.svg")
    drawn = (tmp_path / "measured.svg").read_text()
    assert (DOCS / "measured.svg").read_text() == drawn, "run: python -m docs.measured"


@pytest.mark.parametrize("picture", sorted(DOCS.glob("*.svg")), ids=lambda path: path.name)
def test_it_is_svg_and_shown_on_a_page(picture: Path) -> None:
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    pages = [DOCS.parent / "README.md", *DOCS.rglob("*.md")]
    assert any(f"{picture.name})" in page.read_text() for page in pages)

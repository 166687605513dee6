"""The documentation as a whole: what its blocks may be, and that the site builds."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
TESTED = {"python", "console", "json", "toml", "yaml"}
SHOWN = {"text"}
"""Output and drawings: nothing to run."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_names_a_language_that_is_tested(page: Path) -> None:
    opening = re.findall(r"^ *```(.*)$", page.read_text(), re.MULTILINE)[::2]
    assert set(opening) <= TESTED | SHOWN


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_to_files_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


def test_every_page_can_be_found_from_the_menu() -> None:
    menu = (ROOT / "mkdocs.yml").read_text().split("\nnav:\n")[1]
    pages = {str(page.relative_to(ROOT / "docs")) for page in PAGES if page.parent != ROOT}
    assert pages - set(re.findall(r": (\S+\.md)$", menu, re.MULTILINE)) == set()


@pytest.mark.slow
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "index.html").is_file()
    pages = {page: page.read_text() for page in tmp_path.rglob("*.html")}
    assert not [page for page, text in pages.items() if "--8&lt;" in text], "a file is not shown"

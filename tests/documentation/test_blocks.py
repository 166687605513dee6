"""What a reader would type is in a block that is checked."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"^\s*(?:npx |cdk |cdk-blackwell |python |make |pip |aws )", re.MULTILINE)
USAGE = "[OPTIONS]"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_command_hides_in_a_block_of_output(page: Path) -> None:
    blocks = re.findall(r"^ *```text\n(.*?)^ *```", page.read_text(), re.MULTILINE | re.DOTALL)
    hidden = [block for block in blocks if COMMAND.search(block) and USAGE not in block]
    assert not hidden, "make it a block of console"

"""The page on a run's life says what the controller does."""

from __future__ import annotations

from pathlib import Path

from cdk_blackwell.lifecycle.documentation import document
from cdk_blackwell.lifecycle.handler.outcomes import CONSEQUENCES, RULES

ROOT = Path(__file__).parents[2]


def test_the_page_is_the_generated_one() -> None:
    assert (ROOT / "docs" / "life-of-a-run.md").read_text() == document()


def test_every_rule_and_every_consequence_has_its_row() -> None:
    rows = [line for line in document().splitlines() if line.startswith("| ")]
    assert len(rows) == len(RULES) + len(CONSEQUENCES) + 2

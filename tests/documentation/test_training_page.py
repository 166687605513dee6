"""The page on training names every metric as the table in code does."""

from __future__ import annotations

from pathlib import Path

from cdk_blackwell.planning.metrics import METRICS

PAGE = Path(__file__).parents[2] / "docs" / "explanation" / "training.md"


def test_the_table_of_metrics_is_the_codes_own() -> None:
    rows = [line for line in PAGE.read_text().splitlines() if line.startswith("| `")]
    assert rows == [f"| `{m.key}` | {m.unit} | {m.meaning} |" for m in METRICS]

"""``plan --list-models --json``: the presets for programs."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from cdk_blackwell.cli.main import app
from cdk_blackwell.planning.presets import PRESETS


def test_the_presets_are_listed_as_json_too() -> None:
    rows = json.loads(CliRunner().invoke(app, ["plan", "--list-models", "--json"]).stdout)
    assert [row["preset"] for row in rows] == list(PRESETS)
    assert {row["tier"] for row in rows} == {"small", "mid", "large-sharded"}
    assert all(row["parameters"] > 0 for row in rows)

"""``--verify`` hands the plan to the trainer's oracle and shows both numbers.

The oracle itself is tested with the trainer; here a stand-in answers in its place.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdk_blackwell.cli.errors import CheckFailedError, CommandError
from cdk_blackwell.cli.main import app
from cdk_blackwell.cli.plan import verify

WORDS = ["plan", "--model", "llama-3.1-8b", "-s", "8k", "--nodes", "4", "--verify"]
ANSWER = """
import json, sys
asked = json.load(sys.stdin)
print("one step of", asked["model"]["name"], file=sys.stderr)
print(json.dumps({"allocated_gib": 50.0, "seconds": 1.5, "method": asked["recipe"]["precision"]}))
"""


def stand_in(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle whose oracle is ``script``."""
    (folder / "trainer").mkdir()
    (folder / "trainer" / "__init__.py").write_text("")
    (folder / "trainer" / "oracle.py").write_text(script)
    monkeypatch.setattr(verify, "bundle_source", lambda: folder)


def test_prediction_and_measurement_stand_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, ANSWER, monkeypatch)
    done = CliRunner().invoke(app, [*WORDS, "--eager"])
    assert done.exit_code == 0
    assert "measured, live tensors 50.00 GiB" in " ".join(done.stdout.split())
    found = json.loads(CliRunner().invoke(app, [*WORDS, "--eager", "--json"]).stdout)
    verified = found["verification"]
    assert verified["measured_gib"] == 50
    assert verified["predicted_gib"] == found["memory"]["allocated_gib"]
    assert verified["difference"] == pytest.approx(found["memory"]["allocated_gib"] / 50 - 1)
    assert verified["method"] == found["precision"]


def test_a_compiled_plan_is_compared_as_if_it_ran_plain_operations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, ANSWER, monkeypatch)
    fixed = ["--reshard", "--micro-batch-size", "2", "--activation-checkpointing", "none"]
    compiled = json.loads(CliRunner().invoke(app, [*WORDS, *fixed, "--json"]).stdout)
    predicted = compiled["verification"]["predicted_gib"]
    assert compiled["memory"]["kernels"] == "compiled"
    assert predicted > compiled["memory"]["allocated_gib"]
    assert "both numbers are for plain operations" in compiled["verification"]["method"]


def test_a_plan_that_the_oracle_refuses_is_bad_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "import sys; print('oracle: no such plan', file=sys.stderr); sys.exit(2)"
    stand_in(tmp_path, script, monkeypatch)
    done = CliRunner().invoke(app, WORDS)
    assert isinstance(done.exception, CommandError)
    assert not isinstance(done.exception, CheckFailedError)
    assert str(done.exception) == "--verify cannot check this plan: oracle: no such plan"


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("raise SystemExit('this torch has no tracker')", "this torch has no tracker"),
        ("print('{}')", "counted None GiB"),
        ("print('nonsense')", "not JSON"),
    ],
)
def test_an_oracle_that_fails_is_a_failed_check(
    script: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in(tmp_path, script, monkeypatch)
    done = CliRunner().invoke(app, WORDS)
    assert isinstance(done.exception, CheckFailedError)
    assert says in str(done.exception)


def test_without_torch_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = CliRunner().invoke(app, WORDS)
    assert isinstance(done.exception, CommandError)
    assert str(done.exception) == "--verify needs torch: pip install 'cdk-blackwell[train]'"
    assert done.stdout == ""

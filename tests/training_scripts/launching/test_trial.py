"""A trial in the launcher: whatever becomes of a candidate, the next one is tried and all is told.

The candidates' processes are stand-ins that leave what real ranks leave; the launcher is the real
one.
"""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import launch
from cdk_blackwell.planning.run_spec import RunSpec
from cdk_blackwell.planning.trial import TrialReport
from tests.training_scripts.tiny import tiny_spec, write_container
from trainer.container import Container
from trainer.launching.supervisor import Launcher
from trainer.launching.trial import make_report, read_candidate

STAND_IN = """
import json, os, sys, time
from pathlib import Path
from trainer.rank_state import RankReporter
folder = Path(os.environ["CDKB_TRIAL_CANDIDATE"])
rank = RankReporter(rank=0, folder=Path(os.environ["CDKB_RANK_STATE_DIR"]))
rank.report("running")
kind = sys.argv[1]
if kind == "out_of_memory":
    rank.report("failed", kind="out_of_memory", message="no memory for 3 GiB")
    sys.exit(1)
if kind == "crash":
    os.abort()
if kind == "hang":
    time.sleep(600)
speed = {"slow": 100.0, "fast": 300.0, "wild": 900.0}[kind]
loss = 99.0 if kind == "wild" else 4.0
first = 3.9 if kind == "slow" else 4.1
lines = [{"tokens_per_second": 1.0, "loss": first}, {"tokens_per_second": speed, "loss": loss}]
(folder / "measured.json").write_text(json.dumps(lines))
rank.report("finished")
"""


def run_trial(
    root: Path, kinds: list[str], monkeypatch: pytest.MonkeyPatch, *, seconds: float = 60.0
) -> TrialReport:
    spec = tiny_spec(layout={"shard_gpus": 1})
    write_container(root, spec)
    script = root / "stand_in.py"
    script.write_text(STAND_IN)
    sizes = [replace(spec.recipe, micro_batch_size=n + 1) for n in range(len(kinds))]
    monkeypatch.setattr(launch, "trial_candidates", lambda _: [(spec.layout, r) for r in sizes])
    monkeypatch.setattr(launch, "install_missing_wheels", lambda *_, **__: [])

    def command(short: RunSpec, **_: Any) -> list[str]:
        return [sys.executable, str(script), kinds[int(short.run_id.removeprefix("trial-"))]]

    monkeypatch.setattr(launch, "torchrun_command", command)
    paths = [str(launch.CODE), *(p for p in sys.path if p)]
    environment = {
        "CDKB_ROOT": str(root),
        "CDKB_TRIAL": "1",
        "CDKB_TRIAL_SECONDS": str(round(seconds * len(kinds))),
        "PYTHONPATH": ":".join(paths),
    }
    states = root / "states"
    states.mkdir()
    launcher = Launcher(states, announce=launch.announce, poll_seconds=0.1)
    container = Container.from_environment(environment)
    assert launch.launch(container, environment, launcher) is None
    return TrialReport.from_json((root / "output/data/trial.json").read_text())


def test_memory_crashes_and_odd_losses_are_outcomes_and_the_fastest_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = ["slow", "out_of_memory", "crash", "wild", "fast"]
    report = run_trial(tmp_path, kinds, monkeypatch)
    outcomes = [candidate.outcome for candidate in report.candidates]
    assert outcomes == ["ok", "out_of_memory", "failed", "failed", "ok"]
    assert report.candidates[1].message == "no memory for 3 GiB"
    assert "above ln(vocabulary)" in report.candidates[3].message
    assert report.candidates[0].message == "the loss did not fall: 3.900, then 4.000"
    assert report.candidates[4].message == ""
    assert report.winner == 4
    assert report.complete
    assert "3.00 times the plan's own; 3 did not succeed" in report.reason
    assert not (tmp_path / "checkpoints").exists(), "nothing that a run could take for its own"


def test_a_candidate_that_hangs_is_ended_and_the_next_one_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    report = run_trial(tmp_path, ["hang", "slow"], monkeypatch, seconds=6.0)
    assert [candidate.outcome for candidate in report.candidates] == ["hung", "ok"]
    assert report.winner == 1
    assert time.monotonic() - began < 300, "the stand-in would sleep for 600 s"


def test_a_trial_that_is_cut_off_has_told_what_it_tried(tmp_path: Path) -> None:
    spec = tiny_spec(layout={"shard_gpus": 1})
    lost = read_candidate(
        tmp_path, spec.layout, spec.recipe, None, ranks=1, vocabulary=64, hung=False
    )
    assert (lost.outcome, lost.message) == ("failed", "it ended before its measured steps did")
    report = make_report(spec, [lost], planned=3)
    assert report.winner is None
    assert "So far 1 of 3 were tried." in report.reason
    assert not report.complete
    assert make_report(spec, [lost], planned=1).complete

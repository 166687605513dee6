"""Command line, controller, launcher and command line again: they mean the same by a trial.

What one of them writes the next one reads: the request's environment, the frozen ``run.json``, the
report in the run's folder, and the recipe that it admits. Only torchrun is a stand-in.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

import launch
from cdk_blackwell.cli.errors import RefusedError
from cdk_blackwell.lifecycle.handler.definition import PLACEHOLDER_RUN_ID, PLACEHOLDER_RUN_URI
from cdk_blackwell.planning.contracts import (
    ENV_ATTEMPT,
    ENV_ROOT,
    ENV_RUN_ID,
    ENV_RUN_S3,
    ENV_TRIAL_CANDIDATE,
    RUN_FILE,
)
from cdk_blackwell.planning.run_spec import RunSpec
from tests.cli.deployment import Deployment
from tests.lifecycle.fakes import REGION
from tests.lifecycle.world import definition
from tests.training_scripts.tiny import write_container
from trainer.container import Container
from trainer.launching.supervisor import Launcher

STAND_IN = f"""
import json, os
from pathlib import Path
from trainer.rank_state import RankReporter
folder = Path(os.environ["{ENV_TRIAL_CANDIDATE}"])
rank = RankReporter(rank=0, folder=Path(os.environ["CDKB_RANK_STATE_DIR"]))
rank.report("running")
lines = [{{"tokens_per_second": 1.0, "loss": 4.1}}, {{"tokens_per_second": 800.0, "loss": 4.0}}]
(folder / "measured.json").write_text(json.dumps(lines))
rank.report("finished")
"""


@pytest.fixture
def deployed(deployment: Deployment) -> Deployment:
    """The job's environment as the constructs write it."""
    request = definition().request
    environment = {
        ENV_RUN_ID: PLACEHOLDER_RUN_ID,
        ENV_ATTEMPT: "{{attempt}}",
        ENV_RUN_S3: PLACEHOLDER_RUN_URI,
    }
    job = definition(request={**request, "Environment": environment})
    assert deployment.world.cloudformation("Update", job=job)["Status"] == "SUCCESS"
    return deployment


def run_container(deployed: Deployment, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What SageMaker would do with the newest request: the files, the environment, the launcher."""
    world = deployed.world
    request = world.sagemaker.jobs[world.sagemaker.created[-1]]["Request"]
    frozen = world.frozen(RUN_FILE, request["Environment"][ENV_RUN_ID])
    assert frozen is not None
    write_container(root, RunSpec.from_dict(json.loads(frozen)))
    script = root / "stand_in.py"
    script.write_text(STAND_IN)
    monkeypatch.setattr(launch, "install_missing_wheels", lambda *_, **__: [])
    monkeypatch.setattr(launch, "torchrun_command", lambda *_, **__: [sys.executable, str(script)])
    paths = [str(launch.CODE), *(path for path in sys.path if path)]
    environment: dict[str, str] = {
        **request["Environment"],
        ENV_ROOT: str(root),
        "AWS_REGION": REGION,
        "PYTHONPATH": ":".join(paths),
    }
    states = root / "states"
    states.mkdir()
    launcher = Launcher(states, announce=launch.announce, poll_seconds=0.05)
    container = Container.from_environment(environment)
    assert launch.launch(container, environment, launcher) is None


def test_a_trial_is_told_tried_uploaded_shown_and_admits_the_run(
    deployed: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = deployed.json("trial", "t", "--yes", "--no-wait")
    assert started["state"] == "starting"
    error = deployed.run("start", "a", "--yes", "--require-trial").exception
    assert isinstance(error, RefusedError), "it has not passed yet"

    run_container(deployed, tmp_path, monkeypatch)

    report: dict[str, Any] = deployed.json("trial", "t", "--report")
    assert report["complete"]
    assert report["winner"] is not None
    assert {each["outcome"] for each in report["candidates"]} == {"ok"}
    assert report["candidates"][0]["tokens_per_second_per_gpu"] == 800 / 8
    world = deployed.world
    world.deliver(world.job_event(world.sagemaker.end(world.name("t"), "Completed")))
    assert deployed.json("start", "a", "--yes", "--require-trial")["trial"] == "t"
    other = deployed.run("start", "b", "--yes", "--require-trial", "--set", "recipe.seed=9")
    assert "no trial has passed" in str(other.exception)


def test_a_run_is_no_trial(
    deployed: Deployment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same stand-in: an ordinary start must never take the launcher's way of a trial."""
    deployed.json("start", "a", "--yes")
    monkeypatch.setattr(launch, "run_trial", lambda *_, **__: pytest.fail("it is a trial"))
    monkeypatch.setattr(launch, "run_ranks", lambda *_, **__: None)
    run_container(deployed, tmp_path, monkeypatch)
    error = deployed.run("trial", "a", "--report", "--no-wait").exception
    assert error is not None
    assert "no report yet" in str(error)

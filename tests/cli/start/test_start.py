"""``start`` launches through the real controller, after looking at price and trials."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import typer

from cdk_blackwell.cli.errors import CommandError, RefusedError
from cdk_blackwell.cli.start.overrides import read_overrides
from cdk_blackwell.planning.contracts import TRIAL_FILE, RunLocation
from tests.cli.deployment import Deployment
from tests.lifecycle.fakes import CHECKPOINTS, real_client
from tests.lifecycle.world import definition


def keep_trial(outcome: str = "ok", run_id: str = "t", **recipe: Any) -> None:
    """A trial report of the job's own recipe, or of one that differs."""
    run = definition().run
    ok = outcome == "ok"
    candidate = {
        "layout": run["layout"],
        "recipe": {**run["recipe"], **recipe},
        "outcome": outcome,
        "tokens_per_second_per_gpu": 100.0 if ok else None,
        **dict.fromkeys(("mfu", "allocated_gib", "reserved_gib", "loss")),
        "message": "" if ok else "it broke",
    }
    report = {
        "schema_version": 1,
        "model": run["model"],
        "gpus": 8,
        "complete": True,
        "candidates": [candidate],
        "winner": 0 if ok else None,
        "reason": "the only one",
    }
    where = RunLocation(bucket=CHECKPOINTS, job="pretrain", run_id=run_id)
    real_client("s3").put_object(
        Bucket=where.bucket, Key=where.key(TRIAL_FILE), Body=json.dumps(report).encode()
    )


def test_a_dry_run_shows_the_request_and_starts_nothing(deployment: Deployment) -> None:
    answer = json.loads(deployment.run("start", "a", "--dry-run", "--json").stdout)
    world = deployment.world
    assert answer["request"]["TrainingJobName"] == world.name("a")
    # 5 attempts of 24 h, 120 s to stop and 1,800 s to upload, at 113.93 USD an hour.
    assert answer["cost"]["worst_case_usd"] == pytest.approx(5 * 113.93 * (86_400 + 1_920) / 3600)
    assert world.sagemaker.created == []


def test_yes_launches(deployment: Deployment) -> None:
    done = deployment.run("start", "a", "--yes")
    assert done.exit_code == 0, done.exception
    assert deployment.world.sagemaker.created == [deployment.world.name("a")]
    assert "1 instance(s), up to 24 h per attempt, up to 5 attempts." in done.stdout
    assert "Worst case: 13,975.41 USD (2,795.08 USD per attempt)." in done.stdout
    assert "warning: no trial has passed" in done.stderr


def test_where_nobody_can_answer_a_high_price_needs_yes(deployment: Deployment) -> None:
    error = deployment.run("start", "a").exception
    assert isinstance(error, CommandError)
    assert "13,975.41 USD" in str(error)
    assert "--yes" in str(error)
    assert deployment.world.sagemaker.created == []
    assert deployment.run("start", "a", "--confirm-above", "14000").exit_code == 0


@pytest.mark.parametrize(("typed", "launched"), [("y\n", 1), ("n\n", 0)])
def test_a_person_decides(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, typed: str, launched: int
) -> None:
    from cdk_blackwell.cli.start import checks

    monkeypatch.setattr(typer, "confirm", _confirm(typed))
    monkeypatch.setattr(checks, "sys", _Terminal)
    deployment.run("start", "a")
    assert len(deployment.world.sagemaker.created) == launched


class _Terminal:
    class stdin:  # noqa: N801
        @staticmethod
        def isatty() -> bool:
            return True


def _confirm(typed: str) -> Any:
    def confirm(question: str, *, abort: bool, err: bool) -> None:
        assert "13,975.41 USD" in question
        assert abort
        if typed != "y\n":
            raise typer.Abort

    return confirm


def test_a_trial_of_the_same_recipe_admits_the_run(deployment: Deployment) -> None:
    keep_trial()
    done = deployment.run("start", "a", "--yes", "--require-trial", "--json")
    assert json.loads(done.stdout)["trial"] == "t"
    assert "warning" not in done.stderr


def test_a_trial_of_the_size_that_a_growing_run_begins_with_admits_it(
    deployment: Deployment,
) -> None:
    keep_trial(batch_growth=[8])
    done = deployment.run("start", "a", "--yes", "--require-trial", "--json")
    assert json.loads(done.stdout)["trial"] == "t"


@pytest.mark.parametrize(
    "trial", [{"micro_batch_size": 2}, {"outcome": "out_of_memory"}], ids=["other", "failed"]
)
def test_any_other_trial_does_not(deployment: Deployment, trial: dict[str, Any]) -> None:
    keep_trial(**trial)
    error = deployment.run("start", "a", "--yes", "--require-trial").exception
    assert isinstance(error, RefusedError)
    assert "no trial has passed" in str(error)
    assert deployment.world.sagemaker.created == []


def test_what_the_controller_refuses_ends_with_3_and_its_json(deployment: Deployment) -> None:
    deployment.run("start", "a", "--yes")
    done = deployment.run("start", "a", "--yes", "--json")
    assert isinstance(done.exception, RefusedError)
    assert json.loads(done.stdout)["state"] == "refused"
    assert "already used" in str(done.exception)


def test_an_override_changes_the_request_and_no_trial_of_the_stacks_recipe_admits_it(
    deployment: Deployment,
) -> None:
    keep_trial()
    words = ("--set", "recipe.seed=7", "--set", "recipe.precision=bf16", "--dry-run", "--json")
    done = deployment.run("start", "a", *words)
    assert done.exit_code == 0, done.exception
    answer = json.loads(done.stdout)
    assert answer["request"]["HyperParameters"]["recipe_seed"] == "7"
    assert answer["trial"] is None


def test_an_unknown_override_names_the_known_ones(deployment: Deployment) -> None:
    error = deployment.run("start", "a", "--set", "speed=7").exception
    assert isinstance(error, RefusedError)
    assert "allowed are" in str(error)


@pytest.mark.parametrize("settings", [("seed",), ("=7",), ("seed=1", "seed=2")])
def test_overrides_that_are_none_are_refused(settings: tuple[str, ...]) -> None:
    with pytest.raises(CommandError, match="--set"):
        read_overrides(settings)


@pytest.mark.parametrize("command", ["start", "trial"])
@pytest.mark.parametrize("run_id", ["", "a b", "a-", "a" * 25])
def test_an_id_that_no_training_job_can_have_is_bad_input(
    deployment: Deployment, command: str, run_id: str
) -> None:
    done = deployment.run(command, run_id)
    assert isinstance(done.exception, SystemExit)
    assert done.exception.code == 2
    assert "is not usable: give 1-24 letters" in " ".join(re.split(r"[\s│]+", done.stderr))

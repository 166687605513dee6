"""Two deployed jobs lived with through the real command lines, from the first launch to destroy.

One server and one deployment for all; each test takes the jobs as the one before left them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from cdk_blackwell.cli.doctor.checks import CHECKS
from cdk_blackwell.local.aws import LocalAws
from cdk_blackwell.planning.contracts import COMPLETE_FILE, EXIT_INTERRUPTED
from tests.local_aws.scripted import NEEDS_CDK, Scripted, eventually

pytestmark = [pytest.mark.slow, NEEDS_CDK]
FIRST, SECOND = ("--stack", "First"), ("--stack", "Second")
ALIVE = {"InProgress", "Stopping"}


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scripted]:
    folder = tmp_path_factory.mktemp("scripted")
    with LocalAws(state_dir=folder / "aws") as aws:
        made = Scripted(aws, folder)
        made.set_up()
        made.deploy("First", "Second", FIRST_RUN="one", SECOND_RUN="other")
        yield made


def test_a_deploy_launches_two_jobs_side_by_side(scripted: Scripted) -> None:
    eventually(lambda: scripted.phase("one") == scripted.phase("other") == "Training")
    assert set(scripted.training_jobs().values()) == {"InProgress"}
    for where, run_id in ((FIRST, "one"), (SECOND, "other")):
        (run,) = scripted.json("runs", *where)["runs"]
        assert (run["run_id"], run["state"], len(run["attempts"])) == (run_id, "running", 1)
    assert "choose one of" in scripted.cli("runs", status=2)


def test_a_run_is_watched_read_and_its_checkpoints_listed_while_it_trains(
    scripted: Scripted,
) -> None:
    eventually(lambda: scripted.json("watch", "one", *FIRST, "--once")["checkpoint_step"] >= 2)
    frame = scripted.json("watch", "one", *FIRST, "--once")
    assert (frame["phase"], frame["steps"], frame["ended"]) == ("Training", 1000, False)
    assert frame["metrics"]["loss"] == pytest.approx(5.0 / frame["step"], rel=1)
    lines = scripted.cli("logs", "one", *FIRST)
    assert "run one note=none" in lines
    assert "run other" not in lines
    found = eventually(lambda: scripted.json("checkpoints", "list", "one", *FIRST)["checkpoints"])
    assert found[0]["step"] == 2


def test_a_terminal_is_shown_one_frame_that_is_overwritten(scripted: Scripted) -> None:
    status, screen = scripted.on_a_terminal("watch", "one", *FIRST, interrupt_after=b"Training")
    assert status == EXIT_INTERRUPTED
    assert "Run one: running" in screen
    assert "\x1b[" in screen, "a terminal's own codes"
    assert "Traceback" not in screen
    assert scripted.phase("one") == "Training", "the watching ends, not the run"


def test_a_checkpoint_is_fetched_and_what_is_none_is_not_exported(
    scripted: Scripted, tmp_path: Path
) -> None:
    found = scripted.json(
        "checkpoints", "fetch", "one", *FIRST, "--step", "2", "--output", str(tmp_path)
    )
    folder = Path(found["folder"])
    assert (folder / "weights").read_text() == "2"
    assert (folder / COMPLETE_FILE).is_file()
    words = ("checkpoints", "fetch", "one", *FIRST, "--step", "3", "--output", str(tmp_path))
    assert "no checkpoint of step 3" in scripted.cli(*words, status=2)
    # The script's file is no checkpoint that the exporter can read; the job's own are, elsewhere.
    words = ("checkpoints", "export", "one", *FIRST, "--step", "2", "--output", str(tmp_path / "x"))
    error = json.loads(scripted.cli(*words, "--json", status=1).splitlines()[-1])
    assert "the export failed" in error["error"]
    assert not (tmp_path / "x").exists()


def test_the_doctor_looks_at_everything_and_changes_nothing(scripted: Scripted) -> None:
    before = scripted.training_jobs()
    said = scripted.cli("doctor", *FIRST, "--json", status=1, stdout=True)
    verdicts = {each["check"]: each["verdict"] for each in json.loads(said)["checks"]}
    assert list(verdicts) == list(CHECKS)
    passed = {"credentials", "bootstrap", "bucket policies", "keys", "free addresses", "controller"}
    assert {name for name, verdict in verdicts.items() if verdict == "pass"} >= passed
    assert verdicts["dataset"] == "fail", "its manifest lists nothing"
    assert scripted.training_jobs().keys() == before.keys()


def test_a_script_of_its_own_has_no_trial_and_without_one_a_run_may_be_refused(
    scripted: Scripted,
) -> None:
    assert "a script of its own" in scripted.cli("trial", "t", *FIRST, "--yes", status=3)
    said = scripted.cli("start", "z", *FIRST, "--yes", "--require-trial", status=3)
    assert "no trial has passed" in said
    assert "has no run 't'" in scripted.cli("trial", "t", *FIRST, "--report", status=2)
    assert "give --yes" in scripted.cli("start", "z", *FIRST, "--confirm-above", "1", status=2)


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--stack", "Nobody"), 2, "is not deployed"),
        (("--stack", "First", "--job", "third"), 2, "no job 'third'"),
        (("--stack", "FoundationStack"), 2, "no job of cdk-blackwell"),
        (("--region", "eu-west-1"), 2, "no job of cdk-blackwell"),
        (("--profile", "nobody"), 2, "nobody"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, tuple) else None,
)
def test_what_is_not_there_is_one_line(
    scripted: Scripted, words: tuple[str, ...], status: int, said: str
) -> None:
    told = scripted.cli("runs", *words, status=status)
    assert said in told
    assert told.count("\n") == 1


def test_a_dry_run_shows_request_and_price_and_launches_nothing(scripted: Scripted) -> None:
    before = scripted.training_jobs()
    said = scripted.json("start", "two", *FIRST, "--dry-run")
    assert said["state"] == "dry_run"
    assert "-two-1" in said["request"]["TrainingJobName"]
    assert said["cost"]["worst_case_usd"] <= 500
    assert scripted.training_jobs().keys() == before.keys()


def test_changed_code_without_a_changed_run_id_launches_and_stops_nothing(
    scripted: Scripted,
) -> None:
    before = scripted.training_jobs()
    scripted.deploy("First", FIRST_RUN="one", NOTE="changed")
    assert scripted.training_jobs() == before
    assert scripted.phase("one") == "Training"


def test_a_changed_run_id_stops_the_old_run_and_starts_a_new_one(scripted: Scripted) -> None:
    scripted.deploy("First", FIRST_RUN="three", NOTE="changed")
    eventually(lambda: scripted.status("one") == "Stopped")
    eventually(lambda: "run three note=changed" in scripted.cli("logs", "three", *FIRST))
    states = {run["run_id"]: run["state"] for run in scripted.json("runs", *FIRST)["runs"]}
    assert states == {"one": "stopped", "three": "running"}
    assert scripted.status("other") == "InProgress"


def test_a_rollback_stops_the_new_run_and_relaunches_no_old_one(scripted: Scripted) -> None:
    said = scripted.deploy_fails("First", FIRST_RUN="four", NOTE="changed", BROKEN="1")
    assert "AWS::Budgets::Budget" in said
    eventually(lambda: scripted.status("four") == "Stopped")
    assert scripted.status("three") == "Stopped"
    assert len([name for name in scripted.training_jobs() if name.startswith("first-")]) == 3


def test_a_stopped_run_saves_first_and_is_not_resumed(scripted: Scripted) -> None:
    scripted.cli("stop", "other", *SECOND)
    eventually(lambda: scripted.status("other") == "Stopped")
    assert [name for name in scripted.training_jobs() if "-other-" in name][-1].endswith("-1")
    newest = scripted.json("checkpoints", "list", "other", *SECOND)["checkpoints"][-1]
    assert newest["complete"]
    assert scripted.json("watch", "other", *SECOND, "--once")["ended"]


def test_a_short_run_is_watched_to_its_end_line_by_line(scripted: Scripted) -> None:
    scripted.cli("start", "short", *SECOND, "--yes", "--set", "train_tokens=3145728")
    lines = scripted.cli("watch", "short", *SECOND, "--json", "--interval", "1").splitlines()
    frames = [json.loads(line) for line in lines]
    assert len(frames) > 1
    assert [frame["ended"] for frame in frames] == [False] * (len(frames) - 1) + [True]
    assert (frames[-1]["state"], frames[-1]["step"]) == ("completed", 3)
    followed = scripted.cli("logs", "short", *SECOND, "--follow", "--filter", "note")
    assert "run short note=none" in followed
    (run,) = [one for one in scripted.json("runs", *SECOND)["runs"] if one["run_id"] == "short"]
    assert run["attempts"][0]["cause"] == "completed"
    assert run["usd"] == pytest.approx(
        run["attempts"][0]["billed_seconds_per_instance"] / 3600 * 100
    )


@pytest.mark.parametrize("phase", ["Training", "Stopping", "Completed"])
def test_a_destroy_in_each_phase_leaves_no_job_and_no_controller(
    scripted: Scripted, phase: str
) -> None:
    run_id = f"in-{phase.lower()}"
    # Long enough for the destroy to begin before the job has saved and ended.
    slowly = {"SAVE_SECONDS": "30"} if phase == "Stopping" else {}
    scripted.deploy("Second", **slowly)
    short = ("--set", "train_tokens=2097152") if phase == "Completed" else ()
    scripted.cli("start", run_id, *SECOND, "--yes", *short)
    reached = phase if phase == "Completed" else "Training"
    eventually(lambda: scripted.phase(run_id) == reached)
    if phase == "Stopping":
        # In phase Training the script may not have begun yet: only one that has listens to SIGTERM.
        eventually(lambda: f"run {run_id} " in scripted.cli("logs", run_id, *SECOND))
        scripted.cli("stop", run_id, *SECOND)
        assert scripted.phase(run_id) == "Stopping"
    controller = scripted.job_output("Second").controller
    scripted.destroy("Second")
    assert scripted.status(run_id) == ("Completed" if phase == "Completed" else "Stopped")
    functions = scripted.aws.client("lambda").list_functions()["Functions"]
    assert controller not in [one["FunctionName"] for one in functions]
    assert "is not deployed" in scripted.cli("runs", *SECOND, status=2)


def test_destroying_all_ends_every_job(scripted: Scripted) -> None:
    scripted.destroy("First")
    assert not ALIVE & set(scripted.training_jobs().values())

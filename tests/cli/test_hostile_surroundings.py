"""Closed pipes, interrupts, full disks, missing answers: one line and a documented exit code."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import namedtuple
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

from cdk_blackwell.cli.checkpoints.found import list_checkpoints
from cdk_blackwell.cli.checkpoints.transfer import fetch_checkpoint
from cdk_blackwell.cli.errors import AwsRefusedError, CheckFailedError, CommandError
from cdk_blackwell.deployed.jobs import find_job
from cdk_blackwell.deployed.session import open_aws
from cdk_blackwell.planning.contracts import (
    COMPLETE_FILE,
    EXIT_AWS_REFUSED,
    EXIT_BAD_INPUT,
    EXIT_DONE,
    EXIT_INTERRUPTED,
    step_folder,
)
from tests.cli.checkpoints.test_checkpoints import WHERE, save
from tests.cli.deployment import Deployment
from tests.lifecycle.fakes import CHECKPOINTS, REGION, real_client
from tests.lifecycle.test_unreadable import damage

MAIN = "from cdk_blackwell.cli.entry import main; main()"


def python(before: str, *words: str, **more: Any) -> subprocess.Popen[str]:
    """The command line in a process of its own, after some Python."""
    return subprocess.Popen(
        [sys.executable, "-c", f"{before}\n{MAIN}", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.defpath, "HOME": "/nonexistent", "AWS_EC2_METADATA_DISABLED": "true"},
        **more,
    )


def replaced(body: str) -> str:
    """``init`` does this instead; the rest of the command line is real."""
    return (
        "import cdk_blackwell.cli.init.templates as templates\n"
        f"def broken(*_):\n    {body}\n"
        "templates.write_application = broken"
    )


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("runs", "--region", "us-west-2"), EXIT_AWS_REFUSED),
        (("runs",), EXIT_BAD_INPUT),
        (("runs", "--limit", "none"), EXIT_BAD_INPUT),
    ],
    ids=["no credentials", "no region", "bad usage"],
)
def test_with_json_an_error_is_an_object_on_stderr_and_stdout_is_empty(
    words: tuple[str, ...], code: int
) -> None:
    said, told = (done := python("", *words, "--json")).communicate()
    assert said == ""
    assert done.returncode == code
    error = json.loads(told)
    assert error["exit_code"] == code
    assert error["error"]


@pytest.mark.parametrize("printer", ["print", "__import__('rich').print"])
def test_a_closed_pipe_ends_it_quietly(printer: str) -> None:
    body = f"[{printer}('x' * 80) for _ in range(20_000)]; return []"
    done = python(replaced(body), "init", "--template", "small", "nowhere")
    assert done.stdout is not None
    assert done.stderr is not None
    done.stdout.readline()
    done.stdout.close()
    assert done.stderr.read() == ""
    assert done.wait() == EXIT_DONE


@pytest.mark.parametrize("which", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_130_without_a_traceback(which: signal.Signals) -> None:
    body = "import time; print('waiting', flush=True); time.sleep(60)"
    done = python(replaced(body), "init", "--template", "small", "nowhere")
    assert done.stdout is not None
    assert done.stdout.readline() == "waiting\n"
    time.sleep(0.1)
    done.send_signal(which)
    _, told = done.communicate()
    assert done.returncode == EXIT_INTERRUPTED
    assert told == ""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import errno; raise OSError(errno.ENOSPC, 'No space left on device')", "No space left"),
        ("raise PermissionError(13, 'Permission denied', 'nowhere')", "nowhere: Permission denied"),
        ("raise FileExistsError(17, 'File exists', 'nowhere')", "nowhere: File exists"),
    ],
)
def test_what_the_file_system_refuses_is_one_line(body: str, words: str) -> None:
    done = python(replaced(body), "init", "--template", "small", "nowhere")
    _, told = done.communicate()
    assert done.returncode == EXIT_BAD_INPUT
    assert words in told
    assert told.count("\n") == 1


def test_a_defect_of_ours_keeps_its_traceback() -> None:
    done = python(replaced("raise OSError(9, 'Bad descriptor')"), "init", "--template", "small")
    _, told = done.communicate()
    assert "Traceback" in told


def test_completion_offers_every_command() -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.argv[0] = 'cdk-blackwell'\n{MAIN}"],
        env={
            "PATH": os.defpath,
            "_CDK_BLACKWELL_COMPLETE": "complete_bash",
            "COMP_WORDS": "cdk-blackwell che",
            "COMP_CWORD": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.split() == ["checkpoints"], done.stderr


# --- What AWS does not answer --------------------------------------------------------------------


@pytest.fixture
def saved(deployment: Deployment) -> Deployment:
    deployment.world.ask("start", "a")
    save(100)
    return deployment


def test_a_controller_that_does_not_answer_may_have_launched_and_that_is_said(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(**_: Any) -> Any:
        raise ReadTimeoutError(endpoint_url="https://lambda")

    monkeypatch.setattr(deployment.functions, "invoke", lost)
    error = deployment.run("start", "a", "--yes").exception
    assert isinstance(error, AwsRefusedError)
    assert "may have done what it was asked" in str(error)
    assert "cdk-blackwell runs --stack" in str(error)


def test_one_that_was_never_reached_has_launched_nothing(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(**_: Any) -> Any:
        raise ConnectTimeoutError(endpoint_url="https://lambda")

    monkeypatch.setattr(deployment.functions, "invoke", unreachable)
    assert isinstance(deployment.run("start", "a", "--yes").exception, ConnectTimeoutError)


def test_a_long_history_asks_about_those_it_shows(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = deployment.world
    owner = world.owner()
    for number in range(30):
        world.claim(f"r{number}", by="x")
        world.quiet.store.stop_run(owner.owner, f"r{number}")
        world.time.sleep(1)
    asked: list[str] = []
    honest = world.sagemaker.describe_training_job

    def counted(**arguments: Any) -> Any:
        asked.append(arguments["TrainingJobName"])
        return honest(**arguments)

    monkeypatch.setattr(world.sagemaker, "describe_training_job", counted)
    runs = deployment.json("runs", "--limit", "3")["runs"]
    assert [run["run_id"] for run in runs] == ["r29", "r28", "r27"]
    assert len(asked) == 3
    asked.clear()
    assert deployment.json("watch", "--once")["run_id"] == "r29"
    assert len(asked) <= 2
    error = deployment.run("runs", "nobody").exception
    assert isinstance(error, CommandError)
    assert str(error).endswith("and older ones")
    assert len(str(error)) < 300


def test_what_was_spent_is_known_after_sagemaker_forgot_the_job(deployment: Deployment) -> None:
    world = deployment.world
    world.ask("start", "a")
    world.sagemaker.jobs[world.name("a")]["BillableTimeInSeconds"] = 7_200
    world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))
    del world.sagemaker.jobs[world.name("a")]
    (run,) = deployment.json("runs")["runs"]
    assert run["usd"] == pytest.approx(2 * 113.93)


def test_a_damaged_table_is_named_in_one_line(deployment: Deployment) -> None:
    world = deployment.world
    world.ask("start", "a")
    damage(world, "a", "owner")
    error = deployment.run("runs").exception
    assert isinstance(error, AwsRefusedError)
    assert world.name("a") in str(error)


# --- Fetching ------------------------------------------------------------------------------------


def fetch(folder: Path) -> Path:
    aws = open_aws(None, REGION)
    job = find_job(aws, None, None)
    (found,) = list_checkpoints(aws, job, "a")
    return fetch_checkpoint(aws, CHECKPOINTS, found, folder, lambda text: None)


@pytest.mark.usefixtures("saved")
def test_a_disk_without_room_is_found_out_before_anything_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 50))
    with pytest.raises(CommandError, match="GiB free, the checkpoint needs"):
        fetch(tmp_path)
    assert list((tmp_path / step_folder(100)).iterdir()) == []
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(500, 10, 490))
    assert (fetch(tmp_path) / COMPLETE_FILE).is_file()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(10, 10, 0))
    assert fetch(tmp_path), "what is there already needs no room"


@pytest.mark.usefixtures("saved")
@pytest.mark.parametrize("name", ["../../escaped", "/tmp/escaped"])
def test_a_marker_that_names_a_file_elsewhere_writes_nothing(tmp_path: Path, name: str) -> None:
    key = WHERE.key(f"checkpoints/{step_folder(100)}/{COMPLETE_FILE}")
    s3 = real_client("s3")
    marker = json.loads(s3.get_object(Bucket=CHECKPOINTS, Key=key)["Body"].read())
    record = marker["files"].pop(".metadata")
    marker["files"][name] = record
    s3.put_object(Bucket=CHECKPOINTS, Key=key, Body=json.dumps(marker).encode())
    root = WHERE.key(f"checkpoints/{step_folder(100)}/{name}")
    s3.put_object(Bucket=CHECKPOINTS, Key=root, Body=b"b" * 10)
    with pytest.raises(CheckFailedError, match="outside"):
        fetch(tmp_path / "deep" / "er")
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.usefixtures("saved")
def test_a_file_where_the_folder_should_be_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine")
    with pytest.raises((FileExistsError, NotADirectoryError)) as caught:
        fetch(tmp_path / "taken")
    assert caught.value.filename is not None
    assert (tmp_path / "taken").read_text() == "mine"

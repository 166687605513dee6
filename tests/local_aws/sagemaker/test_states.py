"""The states of a job, their events and their order; stopping; nothing survives the server."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest

from cdk_blackwell.local.sagemaker import container_init
from cdk_blackwell.local.sagemaker import job as job_module
from cdk_blackwell.local.sagemaker.runtime import RuntimeEndedError
from tests.local_aws.sagemaker.embedded import Sagemaker, python, request, wait_until

OBEDIENT = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
DEAF = "trap '' TERM; echo ready; while :; do sleep 0.05; done"
FAMILY = python(
    "import subprocess, time;"
    "child = subprocess.Popen(['sleep', '1000'], start_new_session=True);"
    "print(child.pid, flush=True); time.sleep(1000)"
)
"""A child in a session of its own, as torchrun starts its workers."""


def log(sagemaker: Sagemaker, name: str = "job") -> str:
    path = sagemaker.folder(name) / "log.txt"
    return path.read_text() if path.exists() else ""


def is_running(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_states_of_a_job_that_succeeds_are_told_in_order(sagemaker: Sagemaker) -> None:
    job = sagemaker.run("true")
    wait_until(lambda: len(sagemaker.states()) == 5)
    assert sagemaker.states() == [
        ("InProgress", "Starting"),
        ("InProgress", "Downloading"),
        ("InProgress", "Training"),
        ("InProgress", "Uploading"),
        ("Completed", "Completed"),
    ]
    transitions = job["SecondaryStatusTransitions"]
    assert [step["Status"] for step in transitions] == [state for _, state in sagemaker.states()]
    for earlier, later in itertools.pairwise(transitions):
        assert earlier["StartTime"] <= earlier["EndTime"] == later["StartTime"]
    assert job["TrainingStartTime"] == transitions[1]["StartTime"]
    assert job["TrainingEndTime"] == transitions[-1]["EndTime"]
    ran = job["TrainingEndTime"] - job["TrainingStartTime"]
    assert timedelta(0) <= timedelta(seconds=job["TrainingTimeInSeconds"]) - ran
    assert job["BillableTimeInSeconds"] == job["TrainingTimeInSeconds"]


def test_event_is_what_eventbridge_sends(sagemaker: Sagemaker) -> None:
    job = sagemaker.run("true", Environment={"CDKB_RUN_ID": "a"})
    wait_until(lambda: len(sagemaker.events) == 5)
    event = sagemaker.events[-1]
    assert event["source"] == "aws.sagemaker"
    assert event["detail-type"] == "SageMaker Training Job State Change"
    assert event["resources"] == [job["TrainingJobArn"]]
    assert (event["account"], event["region"]) == ("123456789012", "us-west-2")
    detail = event["detail"]
    assert detail["Environment"] == {"CDKB_RUN_ID": "a"}
    assert detail["TrainingEndTime"] == round(job["TrainingEndTime"].timestamp() * 1000)
    step = detail["SecondaryStatusTransitions"][0]
    created = job["SecondaryStatusTransitions"][0]["StartTime"]
    assert step["StartTime"] == round(created.timestamp() * 1000)
    json.dumps(event)


def test_job_is_described_as_soon_as_its_first_event_is_out(sagemaker: Sagemaker) -> None:
    seen: list[str] = []
    sagemaker.listeners.append(
        lambda event: seen.append(
            sagemaker.describe(event["detail"]["TrainingJobName"])["TrainingJobArn"]
        )
    )
    sagemaker.run("true")
    wait_until(lambda: len(seen) == 5)


def test_event_that_cannot_be_published_does_not_hold_back_the_next(sagemaker: Sagemaker) -> None:
    def refuse_the_first(event: dict[str, Any]) -> None:
        if event["detail"]["SecondaryStatus"] == "Starting":
            raise OSError("nobody listens")

    sagemaker.listeners.append(refuse_the_first)
    assert sagemaker.run("true")["TrainingJobStatus"] == "Completed"
    wait_until(lambda: len(sagemaker.states()) == 4)
    assert sagemaker.states()[0] == ("InProgress", "Downloading")


def test_job_stopped_before_its_container_runs_never_trains(
    sagemaker: Sagemaker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop_meanwhile(needed: int, folder: Path) -> None:
        sagemaker.api.stop_training_job(TrainingJobName="job")

    monkeypatch.setattr(job_module, "check_disk", stop_meanwhile)
    assert sagemaker.run("echo trained")["TrainingJobStatus"] == "Stopped"
    assert not (sagemaker.folder("job") / "log.txt").exists()
    wait_until(lambda: len(sagemaker.states()) == 3)
    assert sagemaker.states()[-1] == ("Stopped", "Stopped")


def test_stop_is_sigterm_and_then_uploads(sagemaker: Sagemaker) -> None:
    sagemaker.start(f"echo w > $CDKB_ROOT/model/w; {OBEDIENT}")
    wait_until(lambda: "ready" in log(sagemaker))
    sagemaker.api.stop_training_job(TrainingJobName="job")
    assert sagemaker.describe()["TrainingJobStatus"] in {"Stopping", "Stopped"}
    job = sagemaker.wait()
    wait_until(lambda: len(sagemaker.states()) == 5)
    assert sagemaker.states()[-3:] == [
        ("InProgress", "Training"),
        ("Stopping", "Stopping"),
        ("Stopped", "Stopped"),
    ]
    assert log(sagemaker) == "ready\nbye\n"
    assert "FailureReason" not in job
    assert sagemaker.keys() == ["out/job/output/model/w"]


def test_container_that_ignores_sigterm_is_killed_after_the_grace(sagemaker: Sagemaker) -> None:
    sagemaker.start(DEAF)
    wait_until(lambda: "ready" in log(sagemaker))
    pid = json.loads((sagemaker.folder("job") / "container.json").read_text())["pid"]
    assert is_running(pid)
    sagemaker.api.stop_training_job(TrainingJobName="job")
    assert sagemaker.wait()["TrainingJobStatus"] == "Stopped"
    assert not is_running(pid)


def test_run_time_over_is_stopped_with_its_own_secondary_status(sagemaker: Sagemaker) -> None:
    job = sagemaker.run(OBEDIENT, StoppingCondition={"MaxRuntimeInSeconds": 1})
    assert (job["TrainingJobStatus"], job["SecondaryStatus"]) == ("Stopped", "MaxRuntimeExceeded")


def test_first_process_ends_and_nothing_of_the_container_stays(sagemaker: Sagemaker) -> None:
    sagemaker.run("setsid sleep 1000 & echo $!")
    assert not is_running(int(log(sagemaker)))


def test_shutdown_leaves_nothing_running(sagemaker: Sagemaker) -> None:
    sagemaker.start(FAMILY)
    wait_until(lambda: log(sagemaker).endswith("\n"))
    pids = [
        int(log(sagemaker)),
        json.loads((sagemaker.folder("job") / "container.json").read_text())["pid"],
    ]
    assert all(is_running(pid) for pid in pids)
    sagemaker.runtime.shutdown()
    assert not any(is_running(pid) for pid in pids)
    sagemaker.runtime.shutdown()  # harmless


def test_death_of_the_server_ends_the_container(tmp_path: Path) -> None:
    """Even SIGKILL, which lets the server do nothing."""
    server = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import os, subprocess, sys, time;"
            "read, write = os.pipe();"
            f"subprocess.Popen([sys.executable, '-IS', {container_init.__file__!r}, str(write),"
            f" str(os.getpid()), *{['bash', '-c', FAMILY]!r}],"
            " pass_fds=(write,), start_new_session=True);"
            "print(os.read(read, 99).decode(), end='', flush=True);"
            "time.sleep(1000)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    pids = [int(server.stdout.readline()) for _ in range(2)]
    assert all(is_running(pid) for pid in pids)
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    server.stdout.close()
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def test_after_shutdown_no_job_starts(sagemaker: Sagemaker) -> None:
    sagemaker.runtime.shutdown()
    with pytest.raises(RuntimeEndedError, match="starts no job"):
        sagemaker.runtime.create(
            request=request("true"),
            body=b"{}",
            account="123456789012",
            region="us-west-2",
            register=lambda record: None,
        )

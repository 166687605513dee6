"""The process around the embedded AWS: start, refusals, end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from cdk_blackwell.local.aws import LocalAws, LocalAwsError
from cdk_blackwell.local.events import complete, rate_seconds, target_input
from cdk_blackwell.local.patches import (
    REPLACED_NAMES,
    MotoMismatchError,
    check_moto,
    is_about_insecure_transport,
)


def test_every_name_we_replace_exists_in_the_installed_moto() -> None:
    check_moto()
    assert len(set(REPLACED_NAMES)) == len(REPLACED_NAMES)


def test_a_missing_name_is_told_with_motos_version() -> None:
    with pytest.raises(
        MotoMismatchError, match=r"moto 5\.2\.5 lacks moto\.events\.models\.Rule\.x"
    ):
        check_moto((("moto.events.models", "Rule.x"),))


def test_a_taken_port_is_one_clear_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(LocalAwsError, match=f"port {port} cannot be used") as error:
            LocalAws(state_dir=tmp_path, port=port)
    assert "\n" not in str(error.value)


def test_a_state_folder_that_cannot_be_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LocalAwsError, match="Not a directory"):
        LocalAws(state_dir=tmp_path / "file" / "below")


def test_the_environment_leads_to_this_aws_and_to_no_profile(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    environment = aws.environment()
    assert environment["AWS_ENDPOINT_URL"] == aws.endpoint_url
    assert "AWS_PROFILE" not in environment
    assert Path(environment["HOME"]).is_relative_to(aws.state_dir)


PARENT = """
import subprocess, sys
child = subprocess.Popen(
    [sys.executable, "-m", "cdk_blackwell.local.server", "--state-dir", sys.argv[1]],
    stdout=subprocess.PIPE, text=True, start_new_session=True,
)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.read()
"""


def test_the_server_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdin is not None
    assert parent.stdout is not None
    server = psutil.Process(int(parent.stdout.readline()))
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    parent.stdin.close()
    parent.stdout.close()
    limit = time.monotonic() + 30
    while server.is_running() and server.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < limit
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("expression", "seconds"),
    [("rate(5 minutes)", 300), ("rate(1 hour)", 3600), ("cron(0 12 * * ? *)", None), ("", None)],
)
def test_schedules(expression: str, seconds: int | None) -> None:
    assert rate_seconds(expression) == seconds


def test_an_event_is_completed_and_an_input_transformed() -> None:
    event = complete("us-west-2", "123456789012", {"source": "s", "detail": {"n": "x"}, "time": 0})
    assert event["time"] == "1970-01-01T00:00:00Z"
    assert event["region"] == "us-west-2"
    transformer = {"InputPathsMap": {"n": "$.detail.n"}, "InputTemplate": '"run <n>"'}
    assert target_input({"InputTransformer": transformer}, event) == '"run x"'
    assert target_input({"InputPath": "$.detail"}, event) == '{"n": "x"}'


def test_only_statements_about_insecure_transport_are_left_out() -> None:
    insecure = {"Condition": {"Bool": {"aws:SecureTransport": "false"}}}
    secure = {"Condition": {"Bool": {"aws:SecureTransport": "true"}}}
    assert is_about_insecure_transport(insecure)
    assert not is_about_insecure_transport(secure)
    assert not is_about_insecure_transport({})

"""``logs`` merges hosts by time, gives every line once, and outlives a lost connection."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError

from cdk_blackwell.cli.aws.reconnect import patient
from cdk_blackwell.cli.logs.lines import Follower, read_lines
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.planning.contracts import NAMESPACE_OF_JOBS
from tests.cli.deployment import Deployment
from tests.lifecycle.fakes import REGION, error, real_client

NOW = int(time.time() * 1000) - 600_000


def say(job_name: str, host: str, *lines: tuple[int, str]) -> None:
    """A host's agent sends lines; times are milliseconds."""
    logs = real_client("logs")
    stream = f"{job_name}/{host}-1700000000"
    groups = logs.describe_log_groups(logGroupNamePrefix=NAMESPACE_OF_JOBS)["logGroups"]
    if not groups:
        logs.create_log_group(logGroupName=NAMESPACE_OF_JOBS)
    if not logs.describe_log_streams(logGroupName=NAMESPACE_OF_JOBS, logStreamNamePrefix=stream)[
        "logStreams"
    ]:
        logs.create_log_stream(logGroupName=NAMESPACE_OF_JOBS, logStreamName=stream)
    logs.put_log_events(
        logGroupName=NAMESPACE_OF_JOBS,
        logStreamName=stream,
        logEvents=[{"timestamp": NOW + at, "message": text} for at, text in lines],
    )


@pytest.fixture
def spoken(deployment: Deployment) -> Deployment:
    world = deployment.world
    world.ask("start", "a")
    say(world.name("a"), "algo-1", (0, "one"), (20, "[rank0]: three ERROR"))
    say(world.name("a"), "algo-2", (10, "two"), (30, "[rank9]: four ERROR"))
    say(world.name("a", 10), "algo-1", (5, "of another attempt"))
    return deployment


def shown(deployment: Deployment, *words: str) -> list[str]:
    done = deployment.run("logs", "a", "--json", *words)
    assert done.exit_code == 0, done.exception
    return [json.loads(line)["message"] for line in done.stdout.splitlines()]


def test_hosts_are_merged_by_time(spoken: Deployment) -> None:
    assert shown(spoken) == ["one", "two", "[rank0]: three ERROR", "[rank9]: four ERROR"]


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (("--host", "algo-2"), ["two", "[rank9]: four ERROR"]),
        (("--rank", "9"), ["[rank9]: four ERROR"]),
        (("--filter", "ERROR"), ["[rank0]: three ERROR", "[rank9]: four ERROR"]),
    ],
)
def test_lines_can_be_chosen(
    spoken: Deployment, words: tuple[str, ...], messages: list[str]
) -> None:
    assert shown(spoken, *words) == messages


def test_following_ends_with_the_attempt(spoken: Deployment) -> None:
    spoken.world.sagemaker.end(spoken.world.name("a"), "Completed")
    assert len(shown(spoken, "--follow")) == 4


def test_a_follower_gives_each_line_once_and_late_ones_too(spoken: Deployment) -> None:
    name = spoken.world.name("a")
    follower = Follower(Aws(session=None, region=REGION), name)
    assert len(list(follower.new_lines())) == 4
    assert list(follower.new_lines()) == []
    say(name, "algo-2", (15, "late"), (40, "five"))
    assert [line.text for line in follower.new_lines()] == ["late", "five"]


def test_before_the_first_host_speaks_there_are_no_lines(deployment: Deployment) -> None:
    assert read_lines(Aws(session=None, region=REGION), "nobody") == []


def test_a_lost_connection_is_tried_again() -> None:
    pauses: list[float] = []
    said: list[str] = []
    answers: list[Any] = [EndpointConnectionError(endpoint_url="x")] * 2

    def call() -> str:
        if answers:
            raise answers.pop()
        return "back"

    assert patient(call, sleep=pauses.append, say=said.append) == "back"
    assert pauses == [1.0, 2.0]
    assert "EndpointConnectionError" in said[0]


def test_an_own_defect_is_not_tried_again() -> None:
    def call() -> str:
        raise KeyError("x")

    with pytest.raises(KeyError):
        patient(call, sleep=lambda _seconds: None, say=lambda _text: None)


@pytest.mark.parametrize(
    ("code", "status"), [("SlowDown", 400), ("InternalServerError", 500), ("Unheard", 503)]
)
def test_troubles_of_aws_are_waited_out(code: str, status: int) -> None:
    answers = iter([error(code, status=status)])

    def call() -> str:
        for trouble in answers:
            raise trouble
        return "back"

    assert patient(call, sleep=lambda _seconds: None, say=lambda _text: None) == "back"

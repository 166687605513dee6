"""Whoever may invoke the function cannot pass for CloudFormation."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from cdk_blackwell.lifecycle.handler.cloudformation import HOP
from cdk_blackwell.lifecycle.handler.definition import ENV_STACK_ID
from cdk_blackwell.lifecycle.handler.origin import ENV_ENDPOINT, ForeignEventError, Origin
from tests.lifecycle.fakes import STACK
from tests.lifecycle.world import ANSWER_URL, World

OWN = {"StackId": STACK, "ResponseURL": ANSWER_URL}


@pytest.mark.parametrize(
    "forged",
    [
        {"StackId": f"{STACK}1"},
        {"StackId": None},
        {"ResponseURL": "https://attacker.example/presigned"},
        {"ResponseURL": ANSWER_URL.replace("https", "http")},
        {"ResponseURL": "https://amazonaws.com.attacker.example/"},
        {"ResponseURL": "https://notamazonaws.com/"},
        {"ResponseURL": "https://s3.amazonaws.com@attacker.example/"},
        {"ResponseURL": "https://attacker.example#.amazonaws.com"},
        {"ResponseURL": "https://attacker.example\\.amazonaws.com/"},
        {"ResponseURL": "file:///etc/passwd"},
        {"ResponseURL": None},
    ],
)
@pytest.mark.parametrize("hop", [False, True], ids=["event", "continuation"])
def test_a_forged_delete_is_neither_obeyed_nor_answered(
    world: World, forged: dict[str, Any], hop: bool
) -> None:
    world.cloudformation("Create", run_id="a")
    calls = len(world.gate.calls)
    event = {**world.event("Delete"), **forged}
    with pytest.raises(ForeignEventError, match=r"StackId|ResponseURL"):
        world.deliver({HOP: {"event": event, "hop": 1}} if hop else event)
    assert world.gate.calls[calls:] == [], "nothing was even looked at"
    assert len(world.answers) == 1, "only the Create was answered"
    assert world.sagemaker.alive() == [world.name("a")]


@pytest.mark.parametrize(
    "url",
    [
        ANSWER_URL,
        "https://cloudformation-custom-resource-response-cnnorth1.s3.cn-north-1.amazonaws.com.cn/x",
        "https://cloudformation-custom-resource-response-useast1.s3.amazonaws.com/x?Signature=y",
    ],
)
def test_addresses_of_aws_are_answered(url: str) -> None:
    Origin(stack_id=STACK).check({**OWN, "ResponseURL": url})


def test_an_embedded_aws_takes_answers_at_its_own_address_only() -> None:
    origin = Origin(stack_id=STACK, endpoint_url="http://localhost:4566")
    origin.check({**OWN, "ResponseURL": "http://localhost:4566/cloudformation-response/x"})
    for url in (ANSWER_URL, "http://localhost:4567/x", "http://localhost:4566@attacker.example/"):
        with pytest.raises(ForeignEventError, match="not at localhost:4566"):
            origin.check({**OWN, "ResponseURL": url})


def test_a_function_that_does_not_know_its_stack_answers_and_complains(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.ERROR):
        Origin(stack_id=None).check(OWN)
    assert f"{ENV_STACK_ID} is not set" in caplog.text
    with pytest.raises(ForeignEventError, match="ResponseURL"):
        Origin(stack_id=None).check({**OWN, "ResponseURL": "https://attacker.example/"})


@pytest.mark.parametrize(
    ("environment", "origin"),
    [
        ({}, Origin(stack_id=None)),
        ({ENV_STACK_ID: STACK}, Origin(stack_id=STACK)),
        (
            {ENV_ENDPOINT: "http://localhost:1"},
            Origin(stack_id=None, endpoint_url="http://localhost:1"),
        ),
    ],
)
def test_the_environment_says_what_is_obeyed(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], origin: Origin
) -> None:
    monkeypatch.delenv(ENV_STACK_ID, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert Origin.from_environment() == origin

"""Runs begun by the clock: one run for each time, and nothing is refused in silence."""

from __future__ import annotations

import pytest
from aws_cdk import App, Stack
from aws_cdk.assertions import Template

from cdk_blackwell.lifecycle.handler.happenings import DETAIL
from cdk_blackwell.lifecycle.handler.schedule import check_name, run_id_of
from cdk_blackwell.lifecycle.run_controller import run_event_rule
from tests.lifecycle.world import World

DUE = {"schedule": "nightly", "time": "2027-01-15T02:00:00Z", "id": "event-1"}


@pytest.fixture
def defined(world: World) -> World:
    world.cloudformation("Create")
    return world


def test_its_run_is_named_after_the_time(defined: World) -> None:
    defined.deliver(DUE)
    assert defined.sagemaker.created == [defined.name("nightly-20270115-0200")]
    assert defined.subjects() == ["pretrain nightly-20270115-0200: launched"]


def test_one_event_delivered_twice_is_one_run_and_tells_nobody_else(defined: World) -> None:
    defined.deliver(DUE)
    defined.deliver(DUE)
    assert len(defined.sagemaker.created) == 1
    assert len(defined.sns.messages) == 1


def test_while_a_run_goes_on_the_next_one_is_refused_and_told(defined: World) -> None:
    defined.ask("start", "long")
    defined.deliver(DUE)
    assert defined.sagemaker.created == [defined.name("long")]
    assert defined.subjects()[-1] == "pretrain nightly-20270115-0200: could not be launched"
    assert "run 'long' of this job is still wanted" in defined.sns.messages[-1]["Message"]
    kind, detail = defined.events.sent[-1]
    assert kind == "Training Run Refused"
    assert set(detail) == set(DETAIL)
    assert detail["attempt"] is None


def test_after_the_stack_is_gone_nothing_starts(defined: World) -> None:
    defined.cloudformation("Delete")
    told = len(defined.sns.messages)
    defined.deliver(DUE)
    assert defined.sagemaker.created == []
    assert len(defined.sns.messages) == told


def test_the_id_is_in_utc_to_the_minute_and_fits() -> None:
    assert run_id_of("a23456789z", "2027-01-15T02:03:59Z") == "a23456789z-20270115-0203"


@pytest.mark.parametrize(("name", "words"), [("a23456789zz", "at most 10"), ("a b", "letters")])
def test_a_name_that_makes_no_run_id_is_refused(name: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        check_name(name)


def test_other_systems_hear_of_one_job_and_of_what_they_ask_for() -> None:
    stack = Stack(App(), "Stack")
    run_event_rule(stack, "Rule", job="pretrain", target=None, happenings=["failed"])
    Template.from_stack(stack).has_resource_properties(
        "AWS::Events::Rule",
        {
            "EventPattern": {
                "source": ["cdk-blackwell"],
                "detail": {"job": ["pretrain"], "what": ["failed"]},
            }
        },
    )
    with pytest.raises(ValueError, match="happening 'fails' is not known: give some of launched"):
        run_event_rule(stack, "B", job="pretrain", target=None, happenings=["fails"])  # type: ignore[list-item]

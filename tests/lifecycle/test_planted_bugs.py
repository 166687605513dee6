"""Bugs planted in the controller: each is caught by the promise it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cdk_blackwell.lifecycle.handler import (
    cloudformation,
    launch,
    main,
    messages,
    resource,
    settle,
    stopping,
)
from cdk_blackwell.lifecycle.handler.answer import Entry, RequestLog
from cdk_blackwell.lifecycle.handler.jobs import Jobs
from cdk_blackwell.lifecycle.handler.notify import Notifier
from cdk_blackwell.lifecycle.handler.records import Claim
from cdk_blackwell.lifecycle.handler.request import render_request
from cdk_blackwell.lifecycle.handler.store import Store
from cdk_blackwell.lifecycle.handler.table import CONDITION_FAILED
from tests.lifecycle.scenery import JOB, Broken
from tests.lifecycle.schedules import INTERNAL, Stage, exhaust
from tests.lifecycle.test_state_machine import STEPS, explore, silence

Plant = Callable[[pytest.MonkeyPatch], None]


def forget_interfaces(monkeypatch: pytest.MonkeyPatch) -> None:
    def blind(services: Any, event: Any, attempts: Any) -> list[Any]:
        return []

    monkeypatch.setattr(resource, "_definitions", blind)


def resubmit_without_a_claim(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every sight of an ended job launches another, whatever was launched before."""
    honest = settle.settle

    def eager(services: Any, attempt: Any, seen: Any, requester: str) -> None:
        honest(services, attempt, seen, requester)
        for number in (2, 3):
            name = f"{attempt.job_name[:-1]}{number}"
            if services.jobs.describe(name) is None:
                services.jobs.create(
                    _next_request(services, replace(attempt, attempt=number - 1)),
                    stack_id=attempt.stack_id,
                    claimed_at=attempt.claimed_at,
                    patient_quota=False,
                    permitted=lambda: None,
                )

    monkeypatch.setattr(main, "bring_up_to_date", _with_settle(eager))


def _with_settle(eager: Any) -> Any:
    def bring_up_to_date(services: Any, attempt: Any, seen: Any, requester: str) -> None:
        if seen is not None and seen.terminal:
            eager(services, attempt, seen, requester)

    return bring_up_to_date


def relaunch_on_rollback(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that was used is launched again by its next attempt."""

    def again(services: Any, event: Any, owner: Any) -> Any:
        if event.run_id is not None:
            services.store.stop_run(event.owner, event.old_run_id or "")
            used = services.store.attempts(event.owner, event.run_id)
            for attempt in used[-1:]:
                services.jobs.create(
                    _next_request(services, attempt),
                    stack_id=event.stack_id,
                    claimed_at=attempt.claimed_at,
                    patient_quota=False,
                    permitted=lambda: None,
                )
        return resource._done(event, "rolled back")

    monkeypatch.setattr(resource, "_stop_old", again)


def _next_request(services: Any, attempt: Any) -> dict[str, Any]:
    run = services.store.run(attempt.owner, attempt.run_id)
    return render_request(
        run.definition,
        stack_id=attempt.stack_id,
        run_id=attempt.run_id,
        attempt=attempt.attempt + 1,
    )


def launch_on_every_update(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deploy that changed anything launches a run with a name of its own."""
    honest = resource._done

    def launching(event: Any, message: str, data: Any = None) -> Any:
        return honest(event, message, data)

    def advance(services: Any, event: Any) -> Any:
        if event.kind == "Update" and event.run_id == event.old_run_id:
            event = replace(event, run_id=f"{event.run_id or 'x'}x", old_run_id=None)
        return resource.advance(services, event)

    monkeypatch.setattr(resource, "_done", launching)
    monkeypatch.setattr(cloudformation, "advance", advance)


def ignore_the_money(monkeypatch: pytest.MonkeyPatch) -> None:
    def unlimited(definition: Any, billed: Any) -> int:
        return int(definition.request["StoppingCondition"]["MaxRuntimeInSeconds"])

    monkeypatch.setattr(launch, "affordable_seconds", unlimited)
    monkeypatch.setattr(settle, "affordable_seconds", unlimited)


def forget_what_was_billed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "billed_before", lambda services, definition, attempt: ())


def count_no_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every attempt is taken for one that got no instances, and the next one is free."""
    monkeypatch.setattr(settle, "counts", lambda cause, *, trained: False)


def answer_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Duplicates of an event are worked and answered like the first."""
    monkeypatch.setattr(
        RequestLog, "begin_answer", lambda self, request_id, invocation, answer: True
    )
    monkeypatch.setattr(
        RequestLog,
        "enter",
        lambda self, request_id, *, hop, invocation: Entry(
            started=self.table.clock.now(), announced=None
        ),
    )


def swallow_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception is logged, and CloudFormation never hears of it."""
    monkeypatch.setattr(cloudformation, "_failed", lambda event, invocation, error: None)


def never_hop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait on in the same invocation until Lambda ends it."""
    monkeypatch.setattr(cloudformation, "HOP_MARGIN_SECONDS", -1e9)
    monkeypatch.setattr(stopping, "stop_attempts", lambda services, attempts: ("a job",))
    monkeypatch.setattr(resource, "stop_attempts", lambda services, attempts: ("a job",))


def tell_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Notifier.tell

    def quiet(self: Notifier, *, what: str, **more: Any) -> bool:
        return what in ("completed", "failed", "stopped") or honest(self, what=what, **more)

    monkeypatch.setattr(Notifier, "tell", quiet)


def tell_after_it_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """The order the controller once had: a crash in between, and nobody was told."""

    def late(services: Any, attempt: Any, run: Any, state: Any, text: str) -> None:
        services.store.set_run_state(run.owner, run.run_id, state, text)
        services.store.stop_run(run.owner, run.run_id)
        if services.store.mark_done(attempt.job_name):
            messages.tell(services, attempt, state, text)

    monkeypatch.setattr(settle, "_end_run", late)


def sweep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trust EventBridge alone."""
    monkeypatch.setattr(main, "reconcile", lambda services, requester: 0)


def stop_by_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop is written down, and no job is asked."""
    monkeypatch.setattr(Jobs, "stop", lambda self, job_name: self.describe(job_name))


def forget_the_tombstone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Store, "bury", lambda self, owner, *, stack_id: None)


def delete_without_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is asked to stop, and CloudFormation is told that it is done."""

    def hasty(services: Any, event: Any) -> Any:
        services.store.bury(event.owner, stack_id=event.stack_id)
        stopping.stop_attempts(services, services.store.attempts(event.owner))
        return resource._done(event, "gone")

    monkeypatch.setattr(resource, "_delete", hasty)


def never_look_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever was stopped between claim and launch is left to the sweep."""

    class Trusting(Store):
        def wants(self, attempt: Any) -> bool:
            return True

    honest = launch.submit

    def submit(services: Any, attempt: Any) -> Any:
        return honest(replace(services, store=Trusting(table=services.table)), attempt)

    monkeypatch.setattr(launch, "submit", submit)


def claim_regardless(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim is won whatever is desired."""

    def won(self: Store, desired: Any, *others: Any) -> Claim:
        writes = [
            {kind: {**members, "ConditionExpression": "attribute_exists(pk)"}}
            for kind, members in desired.items()
        ]
        codes = self.table.transact([*writes, *others])
        return Claim.TAKEN if CONDITION_FAILED in codes else Claim.WON

    monkeypatch.setattr(Store, "_claim", won)


IN_A_SCENE = [
    (forget_the_tombstone, "start", "nothing left"),
    (delete_without_waiting, "delete", "nothing left"),
    (never_look_again, "start", "looked again"),
    (claim_regardless, "start", "nothing left"),
]


PLANTED = [
    (forget_interfaces, "nothing left"),
    (resubmit_without_a_claim, "one live job|no orphan|ceiling"),
    (relaunch_on_rollback, "no orphan|one live job"),
    (launch_on_every_update, "no launch unasked"),
    (ignore_the_money, "ceiling"),
    (forget_what_was_billed, "ceiling"),
    (answer_twice, "one answer"),
    (swallow_failures, "answered in time"),
    (never_hop, "answered in time"),
    (tell_nobody, "reported end"),
    (tell_after_it_is_done, "reported end"),
    (sweep_nothing, "reported end|no orphan"),
    (stop_by_halves, "no orphan|nothing left|answered in time"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "promise"), PLANTED, ids=[each.__name__ for each, _ in PLANTED])
def test_a_planted_bug_is_caught(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, promise: str
) -> None:
    plant(monkeypatch)
    with pytest.raises(Broken, match=promise):
        explore(examples=400, steps=STEPS)


def attempts_that_fail_with_progress() -> None:
    """One more than may be, each after minutes; money would pay for more."""
    stage = Stage()
    stage.running()
    for number in range(1, JOB.maximum_attempts + 1):
        (name,) = stage.world.sagemaker.alive()
        stage.world.let_pass(60.0)
        stage.world.job_ends(name, "Failed", INTERNAL, 100 * number)
        stage.world.queue.append(stage.world.call(stage.world.job_event(name)))
        stage.world.let_pass(1.0)
        stage.world.check_answers()
    assert not stage.world.sagemaker.alive()


def test_the_number_of_attempts_is_a_promise_that_can_break(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with silence():
        attempts_that_fail_with_progress()
    count_no_attempt(monkeypatch)
    with silence(), pytest.raises(Broken, match="max_attempts"):
        attempts_that_fail_with_progress()


@pytest.mark.parametrize(
    ("plant", "scene", "promise"), IN_A_SCENE, ids=[each.__name__ for each, _, _ in IN_A_SCENE]
)
def test_a_planted_race_is_caught_in_its_scene(
    monkeypatch: pytest.MonkeyPatch, plant: Plant, scene: str, promise: str
) -> None:
    plant(monkeypatch)
    with silence(), pytest.raises(Broken, match=promise):
        exhaust(scene)

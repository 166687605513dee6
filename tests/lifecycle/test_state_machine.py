"""The controller's promises over tens of thousands of random steps in a world that fails.

`simulation.py` says what may happen and what is promised.
"""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.lifecycle.simulation import Plan, Sent, Simulation

FAULTS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(
            ["crash before", "crash after", "error before", "error after", "delay", "between"]
        ),
    ),
    max_size=2,
).map(tuple)
OFTEN = st.sampled_from([True, True, True, False])
RARELY = OFTEN.map(lambda often: not often)
ENDS = st.sampled_from(
    [
        ("Completed", ""),
        ("Failed", "InternalServerError: We encountered an internal error."),
        ("Failed", "CapacityError: none left"),
        ("Failed", "AlgorithmError: CDKB class=user step=1 rank=0: wrong, exit code: 1"),
        ("Failed", "AlgorithmError: CDKB class=out_of_memory step=1 rank=0: full, exit code: 1"),
    ]
)
TOLD = st.sampled_from(["lost", "late", "now", "twice"])
COUNTED: Counter[str] = Counter()


class Machine(RuleBasedStateMachine):
    """CloudFormation, people and SageMaker take turns."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Simulation()
        self.stack = "absent"
        """absent, deployed, or the event under way."""
        self.run_id: str | None = None
        """As the deployed template says."""
        self.next_id: str | None = None
        self.flight: Sent | None = None
        self.sibling_fails = False
        self.step = 0
        self.runs = 0

    def new_run(self) -> str:
        self.runs += 1
        self.world.asked.add(f"r{self.runs}")
        return f"r{self.runs}"

    def count(self, name: str) -> None:
        COUNTED[name] += 1
        self.follow()
        self.world.check_answers()

    # --- CloudFormation --------------------------------------------------------------------------

    def send(self, kind: str, plan: Plan, run_id: str | None, old: str | None = None) -> None:
        self.stack, self.next_id = kind, run_id
        self.flight = self.world.send(kind.split()[-1], plan, run_id=run_id, old=old)
        self.world.work(-1)

    def follow(self) -> None:
        """CloudFormation's next move once its event is answered."""
        while self.flight is not None and self.flight.answers:
            succeeded = self.flight.answers[0][1]["Status"] == "SUCCESS"
            fails, self.sibling_fails = not succeeded or self.sibling_fails, False
            self.flight = None
            if self.stack == "Create":
                if fails:
                    self.send("Delete", (), self.next_id)
                else:
                    self.stack, self.run_id = "deployed", self.next_id
            elif self.stack == "Update":
                if fails:
                    self.send("roll back Update", (), self.run_id, self.next_id)
                else:
                    self.stack, self.run_id = "deployed", self.next_id
            elif self.stack == "roll back Update":
                if not succeeded:
                    self.send("roll back Update", (), self.run_id, self.undone)
                else:
                    self.stack = "deployed"
            elif succeeded:
                self.world.check_gone("Delete")
                self.stack, self.run_id = "absent", None
            else:
                self.stack = "undeletable"

    @property
    def undone(self) -> str | None:
        old = self.world.sent[-1].event["OldResourceProperties"]
        run_id: str | None = old.get("RunId")
        return run_id

    @precondition(lambda self: self.stack == "absent")
    @rule(plan=FAULTS, launches=OFTEN, sibling=RARELY)
    def create(self, plan: Any, launches: bool, sibling: bool) -> None:
        self.sibling_fails = sibling and launches
        self.send("Create", plan, self.new_run() if launches else None)
        self.count("create")

    @precondition(lambda self: self.stack == "deployed")
    @rule(plan=FAULTS, change=st.sampled_from(["new", "new", "none", "same"]), sibling=RARELY)
    def update(self, plan: Any, change: str, sibling: bool) -> None:
        run_id = self.run_id if change == "same" else None
        if change == "new":
            run_id = self.new_run()
        self.sibling_fails = sibling
        self.send("Update", plan, run_id, self.run_id)
        self.count("update")

    @precondition(lambda self: self.stack in ("deployed", "undeletable"))
    @rule(plan=FAULTS, unlikely=st.integers(0, 3))
    def delete(self, plan: Any, unlikely: int) -> None:
        if unlikely == 0:
            self.send("Delete", plan, self.run_id)
            self.count("delete")

    # --- People ----------------------------------------------------------------------------------

    @precondition(lambda self: self.stack != "absent")
    @rule(plan=FAULTS)
    def start(self, plan: Any) -> None:
        event = {"action": "start", "run_id": self.new_run()}
        self.world.invoke(self.world.call(event, plan, retried=False))
        self.count("start")

    @precondition(lambda self: self.runs)
    @rule(plan=FAULTS, which=st.integers(0, 20), rarely=RARELY)
    def stop(self, plan: Any, which: int, rarely: bool) -> None:
        if not rarely:
            return
        event = {"action": "stop", "run_id": f"r{max(1, self.runs - which % 3)}"}
        self.world.invoke(self.world.call(event, plan, retried=False))
        self.count("stop")

    # --- SageMaker and EventBridge ---------------------------------------------------------------

    @precondition(lambda self: self.world.sagemaker.alive())
    @rule(plan=FAULTS, end=ENDS, told=TOLD)
    def job_ends(self, plan: Any, end: tuple[str, str], told: str) -> None:
        """Of itself: done, or for one of the reasons that the table of causes tells apart."""
        self.end_job(plan, end, told)
        self.count("job ends")

    @precondition(lambda self: self.world.sagemaker.alive())
    @rule(plan=FAULTS, told=TOLD, seconds=st.sampled_from([10.0, 1_000.0, 3_000.0, 6_000.0]))
    def job_fails(self, plan: Any, told: str, seconds: float) -> None:
        """After a while that is billed, for a reason that is tried again."""
        self.world.let_pass(seconds)
        if self.world.sagemaker.alive():
            self.end_job(plan, ("Failed", "InternalServerError: internal error"), told)
        self.count("job fails")

    def end_job(self, plan: Any, end: tuple[str, str], told: str) -> None:
        self.step += 100
        name = self.world.sagemaker.alive()[0]
        self.world.job_ends(name, *end, self.step if self.step % 300 else 0)
        if told != "lost":
            event = self.world.job_event(name)
            self.world.queue.append(self.world.call(event, plan))
            if told == "twice":
                self.world.queue.append(self.world.call(event))
            if told != "late":
                self.world.work(-1)

    @precondition(lambda self: self.world.sent)
    @rule(which=st.integers(0, 20), rarely=RARELY)
    def repeat_event(self, which: int, rarely: bool) -> None:
        if not rarely:
            return
        sent = self.world.sent[-1 - which % min(3, len(self.world.sent))]
        self.world.queue.append(self.world.call(sent.event))
        self.world.work(-1)
        self.count("repeat event")

    # --- Time ------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from([5.0, 60.0, 300.0, 1_000.0]), plan=FAULTS)
    def wait(self, seconds: float, plan: Any) -> None:
        if plan:
            self.world.queue.append(self.world.call(self.world.sweep_event(), plan))
        self.world.let_pass(seconds)
        self.count("wait")

    def teardown(self) -> None:
        for _ in range(30):
            self.world.calm()
            if self.flight is None:
                break
            self.follow()
        self.world.check_settled()


def explore(examples: int, steps: int) -> None:
    """Run the machine; the same steps every time."""
    COUNTED.clear()
    with silence():
        run_state_machine_as_test(
            Machine,
            settings=settings(
                max_examples=examples,
                stateful_step_count=steps,
                derandomize=True,
                database=None,
                phases=(Phase.generate,),  # A failing run is short enough to read as it is.
                deadline=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )


@contextmanager
def silence() -> Iterator[None]:
    """Without the controller's log and its lines of metrics, of which there would be millions."""
    logging.disable(logging.CRITICAL)
    try:
        with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
            yield
    finally:
        logging.disable(logging.NOTSET)


STEPS: Final = 50


def test_the_promises_hold_over_thousands_of_steps() -> None:
    explore(examples=60, steps=STEPS)
    assert COUNTED.total() >= 1_500


@pytest.mark.slow
def test_the_promises_hold_over_tens_of_thousands_of_steps() -> None:
    explore(examples=700, steps=STEPS)
    assert COUNTED.total() >= 20_000
    assert min(COUNTED.values()) >= 100, COUNTED

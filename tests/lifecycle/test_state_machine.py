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

from tests.lifecycle.scenery import NO_CAPACITY
from tests.lifecycle.simulation import Simulation
from tests.lifecycle.stack import Stack

FAULTS = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.sampled_from(
            [
                *("crash before", "crash after", "error before", "error after"),
                *("delay", "between", "stall"),
            ]
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
        ("Failed", f"{NO_CAPACITY}: none left"),
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
        self.stack = Stack(self.world)
        self.step = 0
        self.runs = 0

    def new_run(self) -> str:
        self.runs += 1
        self.world.asked.add(f"r{self.runs}")
        return f"r{self.runs}"

    def count(self, name: str) -> None:
        COUNTED[name] += 1
        self.stack.follow()
        self.world.check_answers()

    # --- CloudFormation --------------------------------------------------------------------------

    @precondition(lambda self: self.stack.state == "absent")
    @rule(plan=FAULTS, launches=OFTEN, sibling=RARELY)
    def create(self, plan: Any, launches: bool, sibling: bool) -> None:
        self.stack.sibling_fails = sibling and launches
        self.stack.send("Create", plan, self.new_run() if launches else None)
        self.count("create")

    @precondition(lambda self: self.stack.state == "deployed")
    @rule(plan=FAULTS, change=st.sampled_from(["new", "new", "none", "same"]), sibling=RARELY)
    def update(self, plan: Any, change: str, sibling: bool) -> None:
        run_id = self.stack.run_id if change == "same" else None
        if change == "new":
            run_id = self.new_run()
        self.stack.sibling_fails = sibling
        self.stack.send("Update", plan, run_id, self.stack.run_id)
        self.count("update")

    @precondition(lambda self: self.stack.state in ("deployed", "undeletable"))
    @rule(plan=FAULTS, unlikely=st.integers(0, 3))
    def delete(self, plan: Any, unlikely: int) -> None:
        if unlikely == 0:
            self.stack.send("Delete", plan, self.stack.run_id)
            self.count("delete")

    # --- People ----------------------------------------------------------------------------------

    @precondition(lambda self: self.stack.state != "absent")
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
        self.stack.settle()


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
HAPPENED: Final = {
    *("create", "update", "delete", "start", "stop"),
    *("job ends", "job fails", "repeat event", "wait"),
}
"""What must occur: a simulation in which no job ever ends promises nothing."""


def test_the_promises_hold_over_thousands_of_steps() -> None:
    explore(examples=60, steps=STEPS)
    assert COUNTED.total() >= 1_500


@pytest.mark.slow
def test_the_promises_hold_over_tens_of_thousands_of_steps() -> None:
    explore(examples=700, steps=STEPS)
    assert COUNTED.total() >= 20_000
    assert set(COUNTED) == HAPPENED
    assert min(COUNTED.values()) >= 100, COUNTED

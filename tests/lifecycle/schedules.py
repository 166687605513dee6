"""Small scopes, exhausted: short scenes, and at every service call in them everything that can be.

At the n-th call of a scene's main event the function dies, the call fails before or after its
effect, or another event is worked in between; for every n. And two calls fail: what is done about
the first failure makes calls too. What random steps meet seldom, such as a delete between a claim
and its job, comes here for certain.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import count, product
from typing import Final

from tests.lifecycle.scenery import Call, Fault, Plan
from tests.lifecycle.simulation import Simulation
from tests.lifecycle.stack import Stack

ERRORS: Final[tuple[Fault, ...]] = ("error before", "error after")
FAULTS: Final[tuple[Fault, ...]] = ("crash before", "crash after", *ERRORS)
INTERNAL: Final = "InternalServerError: We encountered an internal error."


class Stage:
    """A simulation with its stack, and what may be done on it."""

    def __init__(self) -> None:
        self.world = Simulation()
        # Every look while a job stops is one more call; a few are enough.
        self.world.sagemaker.STOP_SECONDS = 4.0
        self.world.ec2.LINGER = 2.0
        self.stack = Stack(self.world)
        self.world.asked |= {"r1", "r2", "r3"}

    def running(self) -> None:
        """A deployed stack whose run r1 is alive."""
        self.stack.send("Create", (), "r1")
        self.stack.follow()
        self.world.let_pass(400.0)
        assert self.world.sagemaker.alive(), "the scene has its job"

    def defined(self) -> None:
        """A deployed stack without a run."""
        self.stack.send("Create", (), None)
        self.stack.follow()

    def start(self, run_id: str, plan: Plan = ()) -> None:
        self._ask({"action": "start", "run_id": run_id}, plan)

    def stop(self, run_id: str) -> None:
        self._ask({"action": "stop", "run_id": run_id}, ())

    def sweep(self) -> None:
        self.world.queue.append(self.world.call(self.world.sweep_event()))

    def job_fails(self, plan: Plan = ()) -> None:
        """The job that is alive fails with progress; its event is on its way."""
        for name in self.world.sagemaker.alive()[:1]:
            self.world.job_ends(name, "Failed", INTERNAL, 100)
            self.world.queue.append(self.world.call(self.world.job_event(name), plan))

    def delete(self) -> None:
        """CloudFormation's Delete is on its way, where it may send one."""
        if self.stack.flight is None:
            self.stack.send_late("Delete", self.stack.run_id)

    def update(self) -> None:
        """A deploy with run r3 is on its way, where CloudFormation may send one."""
        if self.stack.flight is None:
            self.stack.send_late("Update", "r3", self.stack.run_id)

    def _ask(self, event: dict[str, str], plan: Plan) -> None:
        call: Call = self.world.call(dict(event), plan, retried=False)
        self.world.queue.append(call)


@dataclass(frozen=True, kw_only=True)
class Scene:
    """What is there, what happens, and what may come in between."""

    prepare: Callable[[Stage], None]
    main: Callable[[Stage, Plan], None]
    others: tuple[str, ...]


OTHERS: Final[Mapping[str, Callable[[Stage], None]]] = {
    "stop r1": lambda stage: stage.stop("r1"),
    "stop r2": lambda stage: stage.stop("r2"),
    "start r3": lambda stage: stage.start("r3"),
    "sweep": Stage.sweep,
    "job fails": Stage.job_fails,
    "delete": Stage.delete,
    "update": Stage.update,
}


def _create(stage: Stage, plan: Plan) -> None:
    stage.stack.send("Create", plan, "r1")


def _start(stage: Stage, plan: Plan) -> None:
    stage.start("r1", plan)


def _update(stage: Stage, plan: Plan) -> None:
    stage.stack.send("Update", plan, "r2", "r1")


def _roll_back(stage: Stage, plan: Plan) -> None:
    stage.stack.send("Update", (), "r2", "r1")
    assert stage.stack.flight is not None
    assert stage.stack.flight.answers
    stage.stack.send("roll back Update", plan, "r1", "r2")


def _remove(stage: Stage, plan: Plan) -> None:
    stage.stack.send("Update", plan, None, "r1")


def _delete(stage: Stage, plan: Plan) -> None:
    stage.stack.send("Delete", plan, "r1")


SCENES: Final[Mapping[str, Scene]] = {
    "create": Scene(
        prepare=lambda stage: None, main=_create, others=("stop r1", "sweep", "start r3")
    ),
    "start": Scene(
        prepare=Stage.defined,
        main=_start,
        others=("stop r1", "sweep", "start r3", "delete", "update"),
    ),
    "job fails": Scene(
        prepare=Stage.running,
        main=Stage.job_fails,
        others=("stop r1", "sweep", "delete", "update"),
    ),
    "update": Scene(
        prepare=Stage.running,
        main=_update,
        others=("stop r1", "stop r2", "sweep", "job fails", "start r3"),
    ),
    "roll back": Scene(
        prepare=Stage.running,
        main=_roll_back,
        others=("stop r2", "sweep", "job fails", "start r3"),
    ),
    "remove": Scene(
        prepare=Stage.running, main=_remove, others=("stop r1", "sweep", "job fails", "start r3")
    ),
    "delete": Scene(
        prepare=Stage.running, main=_delete, others=("stop r1", "sweep", "job fails", "start r3")
    ),
}


def play(name: str, plan: Plan, other: str | None = None) -> int:
    """Play a scene once; how many faults of ``plan`` its main event met.

    Broken when a promise does not hold.
    """
    scene, stage = SCENES[name], Stage()
    try:
        scene.prepare(stage)
        before = stage.world.faults.total()
        if other is not None:
            OTHERS[other](stage)
        scene.main(stage, plan)
        stage.world.work(-1)
        met = stage.world.faults.total() - before
        stage.stack.follow()
        stage.world.check_answers()
        stage.stack.settle()
    except Exception as error:
        error.add_note(f"{name}: {plan} {other or ''}")
        raise
    return met


def exhaust(name: str) -> int:
    """Play every schedule of a scene with one fault; how many there are."""
    others = SCENES[name].others
    return _exhaust(
        name,
        lambda number: [
            *((((number, fault),), None) for fault in FAULTS),
            *((((number, "between"),), other) for other in others),
        ],
    )


def exhaust_pairs(name: str, within: int) -> int:
    """Play a scene with every two errors at most ``within`` calls apart; how many there are."""
    return _exhaust(
        name,
        lambda number: [
            (((number, first), (number + apart, second)), None)
            for first, second, apart in product(ERRORS, ERRORS, range(1, within + 1))
        ],
    )


def _exhaust(name: str, plays_at: Callable[[int], list[tuple[Plan, str | None]]]) -> int:
    """All plays at each call of the main event, until it has no such call."""
    played = 0
    for number in count():
        plays = plays_at(number)
        met = sum(play(name, plan, other) for plan, other in plays)
        played += len(plays)
        if not met:
            break
    return played

"""CloudFormation's side of the simulation: one event at a time, in its documented order."""

from __future__ import annotations

from tests.lifecycle.scenery import Plan, Sent
from tests.lifecycle.simulation import Simulation


class Stack:
    """One stack that holds the custom resource, and perhaps a sibling that fails."""

    def __init__(self, world: Simulation) -> None:
        self.world = world
        self.state = "absent"
        """absent, deployed, undeletable, or the event under way."""
        self.run_id: str | None = None
        """As the deployed template says."""
        self.flight: Sent | None = None
        self.sibling_fails = False
        """A resource beside ours fails when our event has been answered."""
        self._next: str | None = None

    def send(self, kind: str, plan: Plan, run_id: str | None, old: str | None = None) -> None:
        """Begin Create, Update, ``roll back Update`` or Delete, and let the function take it up."""
        self.send_late(kind, run_id, old, plan=plan)
        self.world.work(-1)

    def send_late(
        self, kind: str, run_id: str | None, old: str | None = None, *, plan: Plan = ()
    ) -> None:
        """The same, but the event is still on its way."""
        self.state, self._next = kind, run_id
        self.flight = self.world.send(kind.split()[-1], plan, run_id=run_id, old=old)

    def follow(self) -> None:
        """CloudFormation's next moves once its events are answered."""
        while self.flight is not None and self.flight.answers:
            succeeded = self.flight.answers[0][1]["Status"] == "SUCCESS"
            fails, self.sibling_fails = not succeeded or self.sibling_fails, False
            old = self.flight.event.get("OldResourceProperties", {}).get("RunId")
            self.flight = None
            if succeeded and old is not None and old != self._next:
                self.world.over.add(old)
            if self.state == "Create" and fails:
                self.send("Delete", (), self._next)
            elif self.state == "Update" and fails:
                self.send("roll back Update", (), self.run_id, self._next)
            elif self.state == "roll back Update" and not succeeded:
                self.send("roll back Update", (), self.run_id, old)
            elif self.state in ("Create", "Update"):
                self.state, self.run_id = "deployed", self._next
            elif self.state == "roll back Update":
                self.state = "deployed"
            elif succeeded:
                self.world.check_gone("Delete")
                self.state, self.run_id = "absent", None
            else:
                self.state = "undeletable"

    def settle(self) -> None:
        """Let everything come to its end, and check what is promised then."""
        for _ in range(30):
            self.world.calm()
            if self.flight is None:
                break
            self.follow()
        self.world.check_settled()

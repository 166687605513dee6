"""What a stopping run does, and in which order, without ranks and without a model."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from trainer import loop
from trainer.loop import Outcome, TrainingLoop


class Stopping:
    """A loop of which only leaving is real; ``done`` is all that it did."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, *, saves: bool = True, complete: int = 0
    ) -> None:
        self.done: list[Any] = []
        self.checkpointer = SimpleNamespace(busy=False, last_complete_step=complete)
        monkeypatch.setattr(loop, "finish_current", lambda *_: self.note("wait"))
        monkeypatch.setattr(loop, "may_save", lambda *_: self.note("may save?"))
        parts = SimpleNamespace(
            stream=SimpleNamespace(close=lambda: self.note("close")),
            predictions=SimpleNamespace(conclude=lambda step: self.note(("conclude", step))),
            ranks=SimpleNamespace(enter=lambda phase: self.note(("enter", phase))),
            report=SimpleNamespace(event=lambda name, **told: self.note((name, told))),
            checkpointer=self.checkpointer,
            world=None,
            stop=None,
            saves=saves,
            begin_save=self.begin,
            settle=self.settle,
        )
        self.parts = cast(Any, parts)

    def note(self, what: Any) -> bool:
        self.done.append(what)
        return True

    def begin(self, step: int) -> None:
        assert ("begin", step) not in self.done, "this step is being saved for ever"
        self.note(("begin", step))

    def settle(self, step: int) -> None:
        self.note(("settle", step))
        self.checkpointer.last_complete_step = step

    def leave(self, step: int) -> Outcome:
        return TrainingLoop.leave(self.parts, step)


def test_a_trial_measures_what_it_has_and_saves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stopping = Stopping(monkeypatch, saves=False)
    assert stopping.leave(3) == Outcome(step=3, stopped=True)
    assert stopping.done == ["close", ("conclude", 3)]


def test_a_run_says_that_it_saves_before_it_waits_and_ends_with_what_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watchdog has more patience with a rank that saves."""
    stopping = Stopping(monkeypatch, complete=1)
    assert stopping.leave(3) == Outcome(step=3, stopped=True, abandoned_save=False)
    assert stopping.done == [
        "close",
        ("conclude", 3),
        ("enter", "saving"),
        "wait",
        "may save?",
        ("begin", 3),
        "wait",
        ("settle", 3),
        ("stopped", {"step": 3, "last_complete_step": 3}),
    ]


@pytest.mark.parametrize("complete", [3, 4])
def test_a_step_that_is_kept_already_is_not_saved_again(
    complete: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping = Stopping(monkeypatch, complete=complete)
    assert stopping.leave(3) == Outcome(step=3, stopped=True)
    assert not [one for one in stopping.done if one[0] == "begin"]

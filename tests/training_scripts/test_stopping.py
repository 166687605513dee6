"""Whether one more save is begun after SIGTERM: never one that the grace would cut off in vain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from trainer.stopping import GRACE_SECONDS, may_save


@dataclass(frozen=True)
class Saves:
    """What is known of earlier saves."""

    predicted_seconds: float
    last_complete_step: int


@dataclass(frozen=True)
class Asked:
    """A stop that was asked for some time ago."""

    ago: float

    def seconds_since(self) -> float:
        return self.ago


class Alone:
    """One rank, so that its own value is the largest."""

    def maximum(self, *values: float) -> list[float]:
        return list(values)


class Told:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []

    def event(self, name: str, **details: Any) -> None:
        self.events.append({"event": name, **details})


def asked(saves: Saves, *, ago: float) -> tuple[bool, list[dict[str, Any]]]:
    told = Told()
    parts = (saves, Alone(), Asked(ago), told)
    return may_save(*cast(tuple[Any, Any, Any, Any], parts)), told.events


@pytest.mark.parametrize("ago", [0.0, GRACE_SECONDS - 30])
def test_a_save_that_is_predicted_to_finish_is_begun(ago: float) -> None:
    assert asked(Saves(30.0, last_complete_step=8), ago=ago) == (True, [])


def test_one_that_is_not_is_left_out_and_the_reason_told() -> None:
    begun, told = asked(Saves(30.0, last_complete_step=8), ago=GRACE_SECONDS - 20)
    assert not begun
    assert told == [
        {
            "event": "stop_without_save",
            "predicted_seconds": 30.0,
            "seconds_left": 20.0,
            "last_complete_step": 8,
        }
    ]


def test_without_any_checkpoint_it_is_always_tried() -> None:
    assert asked(Saves(1e6, last_complete_step=0), ago=GRACE_SECONDS) == (True, [])

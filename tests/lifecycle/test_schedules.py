"""The promises hold whatever happens at whichever call of a few scenes."""

from __future__ import annotations

import pytest

from tests.lifecycle.schedules import SCENES, exhaust
from tests.lifecycle.test_state_machine import silence

QUICK = ("create", "start", "job fails")
"""The others wait for a job to stop, which takes many calls."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SCENES],
)
def test_every_schedule_of_a_scene_keeps_every_promise(name: str) -> None:
    with silence():
        assert exhaust(name) >= 100

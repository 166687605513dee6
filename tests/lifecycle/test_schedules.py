"""The promises hold whatever happens at whichever call of a few scenes."""

from __future__ import annotations

import pytest

from tests.lifecycle.schedules import SCENES, exhaust, exhaust_pairs
from tests.lifecycle.test_state_machine import silence

QUICK = ("create", "start", "job fails")
"""The others wait for a job to stop, which takes many calls."""


EVERY_SCENE = pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SCENES],
)


@EVERY_SCENE
def test_every_schedule_of_a_scene_keeps_every_promise(name: str) -> None:
    with silence():
        assert exhaust(name) >= 100


@EVERY_SCENE
def test_every_two_errors_close_to_each_other_keep_every_promise(name: str) -> None:
    """The second one meets the clean-up after the first."""
    with silence():
        assert exhaust_pairs(name, within=4) >= 250

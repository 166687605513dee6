"""Which rank holds the others up."""

from __future__ import annotations

import pytest

from trainer.stragglers import spread


def test_the_slowest_rank_is_set_against_the_median() -> None:
    found = spread([(1.0, 0.0), (1.1, 0.25), (1.5, 0.0), (1.0, 0.0), (1.2, 0.1)])
    assert found.slowest == 2
    assert found.compute == pytest.approx(1.5 / 1.1)
    assert found.data_wait_seconds == 0.25


def test_one_rank_is_even_with_itself() -> None:
    assert spread([(0.2, 0.0)]).compute == 1.0

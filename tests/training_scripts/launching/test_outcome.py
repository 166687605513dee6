"""How the job ended, by what its ranks left behind."""

from __future__ import annotations

import pytest

from cdk_blackwell.planning.contracts import Failure
from trainer.launching.outcome import judge
from trainer.rank_state import RankState


def state(rank: int, name: str, **more: object) -> RankState:
    return RankState(rank=rank, state=name, **more)  # type: ignore[arg-type]


def test_a_saved_stop_counts_as_success_although_torchrun_says_one() -> None:
    states = [state(0, "stopped", step=9), state(1, "stopped", step=9)]
    assert judge(1, states, ranks=2, stop_requested=True) is None
    assert judge(1, states, ranks=3, stop_requested=True) is not None


@pytest.mark.parametrize(
    "states",
    [
        [],
        [state(0, "running")],
        [state(0, "running", step=40), state(1, "running")],
        [state(0, "stopped", step=40, phase="saving"), state(1, "running", step=40)],
    ],
)
def test_a_stop_before_the_first_step_has_nothing_to_lose(states: list[RankState]) -> None:
    """Importing or compiling may outlast the grace; ``step`` is that of the resumed checkpoint."""
    assert judge(1, states, ranks=2, stop_requested=True) is None
    assert judge(1, states, ranks=2, stop_requested=False) is not None


def test_a_stop_that_kills_a_rank_in_training_has_lost_its_steps() -> None:
    states = [state(0, "running"), state(1, "running", step=7, phase="training")]
    failure = judge(1, states, ranks=2, stop_requested=True)
    assert failure is not None
    assert failure.message == "ranks 0, 1 were ended while saving after SIGTERM before reporting"


def test_a_killed_rank_is_infrastructure_although_others_failed_over_it() -> None:
    states = [
        state(0, "failed", kind="infrastructure", message="connection closed by peer", step=7),
        state(1, "running", step=7),
    ]
    failure = judge(1, states, ranks=2, stop_requested=False)
    assert failure is not None
    assert (failure.kind, failure.rank, failure.step) == ("infrastructure", 1, 7)


def test_the_first_rank_with_a_reason_of_its_own_is_named() -> None:
    states = [
        state(0, "failed", kind="infrastructure", message="peer", time=2.0),
        state(1, "failed", kind="out_of_memory", message="CUDA out of memory", step=3, time=3.0),
        state(2, "running"),
        state(3, "abandoned"),
    ]
    failure = judge(1, states, ranks=4, stop_requested=False)
    assert failure == Failure(kind="out_of_memory", message="CUDA out of memory", step=3, rank=1)


def test_ranks_that_never_began_are_an_internal_failure() -> None:
    failure = judge(1, [], ranks=2, stop_requested=False)
    assert failure is not None
    assert failure.kind == "internal"

"""When an attempt must end although torchrun would go on: hangs, useless restarts, other hosts.

Pure but for the clock it is given: from the ranks' accounts to a verdict.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from cdk_blackwell.planning.contracts import Failure, FailureClass
from trainer.launching.outcome import judge
from trainer.rank_state import RankState

SLOW_PHASE_FACTOR: Final = 4.0
"""Patience with starting, saving and exporting, in units of that with a micro-batch."""
FINAL_CLASSES: Final[frozenset[FailureClass]] = frozenset({"user", "data"})
"""What another start of the same program on the same data only repeats."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The attempt is to be ended."""

    failure: Failure
    dump: tuple[RankState, ...] = ()
    """Processes whose stacks the log needs first."""


def find_hang(start: Sequence[RankState], *, now: float, limit_seconds: float) -> Verdict | None:
    """No sign of life from any running rank of this host for too long.

    Ranks of a step wait for each other, so one that hangs silences all.
    """
    running = tuple(state for state in start if state.state == "running")
    if not running or any(state.state in ("failed", "abandoned") for state in start):
        return None  # nothing to wait for, or torchrun is about to act on a failed rank
    patience = SLOW_PHASE_FACTOR if any(s.phase != "training" for s in running) else 1.0
    last = max(running, key=lambda state: state.time)
    silent = now - last.time
    if silent <= patience * limit_seconds:
        return None
    return Verdict(
        failure=Failure(
            kind="infrastructure",
            message=f"no rank of this host came forward for {silent:.0f} s while {last.phase} "
            f"(limit {patience * limit_seconds:.0f} s, from hang_seconds); the stacks of all ranks "
            "are in the log",
            step=max(state.step for state in running),
            rank=min(running, key=lambda state: state.time).rank,
        ),
        dump=running,
    )


def out_of_time(start: Sequence[RankState], *, limit_seconds: float) -> Verdict:
    """Alive or not, it takes longer than it may."""
    running = tuple(state for state in start if state.state == "running")
    return Verdict(
        failure=Failure(
            kind="infrastructure",
            message=f"not done within the {limit_seconds:.0f} s that it may take; the stacks of "
            "all ranks are in the log",
        ),
        dump=running,
    )


def follow(told: Failure, start: Sequence[RankState]) -> Verdict:
    """End for what another host has told.

    Where it missed a rank, or its ranks hang, the stacks of those that wait for it here show where.
    """
    waiting = told.kind == "infrastructure"
    return Verdict(
        failure=told, dump=tuple(s for s in start if s.state == "running") if waiting else ()
    )


def find_useless_restart(starts: Sequence[Sequence[RankState]], *, ranks: int) -> Verdict | None:
    """torchrun has started the workers again where that cannot help.

    Never after a mistake in the program or its data; and after any other failure only once
    without a new complete checkpoint: the first start may end before its first checkpoint is due,
    a restart that saves nothing shows that the next one would not either.
    """
    if len(starts) < 2:
        return None
    ended = starts[-2]
    cause = judge(1, ended, ranks=ranks, stop_requested=False)
    if cause is None:
        return None
    if cause.kind in FINAL_CLASSES:
        return Verdict(failure=cause)
    if len(starts) > 2 and all(state.saved_step < 0 for state in ended):
        return Verdict(
            failure=Failure(
                kind=cause.kind,
                message=f"restart {len(starts) - 2} in the cluster completed no checkpoint before "
                f"it failed too, so there is no further one: {cause.message}",
                step=cause.step,
                rank=cause.rank,
            )
        )
    return None

"""From what the ranks left behind to how the job ended."""

from __future__ import annotations

from collections.abc import Sequence
from signal import strsignal

from cdk_blackwell.planning.contracts import Failure
from trainer.rank_state import RankState

CLEAN_ENDS = ("finished", "stopped")


def judge(
    status: int, states: Sequence[RankState], *, ranks: int, stop_requested: bool
) -> Failure | None:
    """The failure to report, or None when training ended as it should.

    torchrun exits with 1 after SIGTERM also when every rank saved and left in good order. Ranks
    that were stopped before their first step had nothing to save.
    """
    if status == 0:
        return None
    clean = sum(1 for state in states if state.state in CLEAN_ENDS)
    starting = sum(1 for s in states if s.state == "running" and s.phase == "starting")
    nothing_done = clean + starting == len(states) and (starting > 0 or not states)
    if stop_requested and (clean == ranks or nothing_done):
        return None
    failed = sorted((s for s in states if s.state == "failed"), key=lambda state: state.time)
    # A lost rank breaks the connections of all others: only another kind of failure is a cause.
    causes = [state for state in failed if state.kind != "infrastructure"]
    lost = [state for state in states if state.state == "running"]
    if causes:
        return _failure(causes[0])
    if lost:
        names = ", ".join(str(state.rank) for state in lost)
        who = f"rank {names} was" if len(lost) == 1 else f"ranks {names} were"
        if status < 0:
            how = f"with torchrun, which signal {-status} ({strsignal(-status)}) ended,"
        elif stop_requested:
            how = "while saving after SIGTERM"
        else:
            how = "by a signal, such as SIGKILL,"
        return Failure(
            kind="infrastructure",
            message=f"{who} ended {how} before reporting",
            step=max(state.step for state in lost),
            rank=lost[0].rank,
        )
    if failed:
        return _failure(failed[0])
    return Failure(
        kind="internal", message=f"torchrun ended with status {status}, but no rank reported why"
    )


def lost_others_only(states: Sequence[RankState]) -> bool:
    """Whether nothing here explains the end: every rank that did not end well missed another one.

    A rank that was killed still says ``running``: that is a cause, though of the same class.
    """
    bad = [state for state in states if state.state not in CLEAN_ENDS]
    return bool(bad) and all(
        state.state == "abandoned" or (state.state == "failed" and state.kind == "infrastructure")
        for state in bad
    )


def _failure(state: RankState) -> Failure:
    return Failure(
        kind=state.kind or "internal", message=state.message, step=state.step, rank=state.rank
    )

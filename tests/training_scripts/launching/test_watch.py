"""When the launcher ends an attempt itself: hangs, useless restarts, and what other hosts say."""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import launch
from cdk_blackwell.planning.contracts import Failure
from trainer.launching.outcome import lost_others_only
from trainer.launching.shared_failure import SharedFailure
from trainer.launching.supervisor import Launcher
from trainer.launching.watch import find_hang, find_useless_restart, follow
from trainer.rank_state import RankReporter, RankState, by_start, read_rank_states

SCRIPTS = Path(launch.__file__).parent


def state(rank: int, name: str = "running", **more: Any) -> RankState:
    more = {"slot": rank, "phase": "training", **more}
    return RankState(rank=rank, state=name, **more)  # type: ignore[arg-type]


# --- Starts of the workers -----------------------------------------------------------------------


def test_accounts_of_restarted_workers_are_told_apart_also_when_ranks_move() -> None:
    """After a restart torchrun may give a host other ranks; the old accounts say nothing more."""
    first = [state(8, slot=0, started=1.0), state(9, slot=1, started=1.1)]
    second = [state(1, slot=1, started=5.0), state(0, slot=0, started=5.1)]
    assert by_start([*first, *second]) == [first, second[::-1]]


def test_every_process_has_a_file_of_its_own(tmp_path: Path) -> None:
    ranks = RankReporter(rank=3, folder=tmp_path, slot=1)
    ranks.advance(4)
    ranks.saved(4)
    ranks.report("failed", kind="data", message="bad shard")
    (told,) = read_rank_states(tmp_path)
    assert (told.rank, told.slot, told.step, told.saved_step) == (3, 1, 4, 4)
    assert (told.phase, told.kind, told.message) == ("training", "data", "bad shard")


def test_an_end_is_in_the_file_before_a_second_account_of_it_returns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread woken by SIGTERM and the handler both report, and then leave the process."""
    ranks = RankReporter(rank=0, folder=tmp_path)
    ranks.advance(4)
    second = threading.Thread(target=ranks.report, args=("abandoned",))
    write = Path.write_text

    def meanwhile(self: Path, *what: Any, **more: Any) -> int:
        second.start()
        second.join(timeout=0.5)
        assert second.is_alive(), "it would leave the process now, with the file still running"
        return write(self, *what, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", meanwhile)
        ranks.report("abandoned")
    second.join()
    assert [told.state for told in read_rank_states(tmp_path)] == ["abandoned"]


# --- Hangs ---------------------------------------------------------------------------------------


def test_silence_of_all_ranks_is_a_hang() -> None:
    ranks = [state(0, step=7, time=100.0), state(1, step=7, time=101.0)]
    assert find_hang(ranks, now=131.0, limit_seconds=30.0) is None
    verdict = find_hang(ranks, now=132.0, limit_seconds=30.0)
    assert verdict is not None
    assert verdict.dump == tuple(ranks)
    assert (verdict.failure.kind, verdict.failure.step) == ("infrastructure", 7)
    assert verdict.failure.rank == 0, "the rank that has been silent for longest"
    assert "no rank of this host came forward for 31 s" in verdict.failure.message


@pytest.mark.parametrize("phase", ["starting", "saving", "exporting"])
def test_slow_phases_get_more_time(phase: str) -> None:
    ranks = [state(0, time=100.0, phase=phase), state(1, time=100.0)]
    assert find_hang(ranks, now=219.0, limit_seconds=30.0) is None
    assert find_hang(ranks, now=221.0, limit_seconds=30.0) is not None


def test_a_finished_rank_does_not_hide_that_others_hang_but_a_failed_one_is_torchruns() -> None:
    hanging = state(1, time=100.0)
    assert find_hang([state(0, "finished"), hanging], now=200.0, limit_seconds=30.0) is not None
    assert find_hang([state(0, "failed"), hanging], now=200.0, limit_seconds=30.0) is None
    assert find_hang([state(0, "finished")], now=200.0, limit_seconds=30.0) is None


# --- Restarts in the cluster ---------------------------------------------------------------------


def lost(saved_step: int = -1) -> list[RankState]:
    """A start that ended because a rank was killed."""
    return [state(0, step=5, saved_step=saved_step)]


def test_a_first_restart_is_always_tried() -> None:
    assert find_useless_restart([lost()], ranks=1) is None
    assert find_useless_restart([lost(), [state(0)]], ranks=1) is None


def test_a_restart_that_saved_nothing_is_the_last() -> None:
    verdict = find_useless_restart([lost(), lost(), [state(0)]], ranks=1)
    assert verdict is not None
    assert verdict.failure.kind == "infrastructure"
    assert "restart 1 in the cluster completed no checkpoint" in verdict.failure.message
    assert find_useless_restart([lost(), lost(saved_step=10), [state(0)]], ranks=1) is None


def test_the_last_restart_names_the_step_and_the_rank_that_were_lost() -> None:
    ended = [state(2, step=5, saved_step=-1), state(3, step=4, saved_step=-1)]
    verdict = find_useless_restart([lost(), ended, [state(2)]], ranks=2)
    assert verdict is not None
    assert (verdict.failure.step, verdict.failure.rank) == (5, 2)
    assert "ranks 2, 3 were ended by a signal" in verdict.failure.message


def test_a_restart_is_useful_as_soon_as_one_rank_knows_of_a_checkpoint() -> None:
    ended = [state(0, step=5, saved_step=4), state(1, step=5, saved_step=-1)]
    assert find_useless_restart([lost(), ended, [state(0)]], ranks=2) is None


@pytest.mark.parametrize("kind", ["user", "data"])
def test_a_mistake_is_never_tried_again(kind: str) -> None:
    failed = [state(0, "failed", kind=kind, message="bad token", step=3)]
    verdict = find_useless_restart([failed, [state(0)]], ranks=1)
    assert verdict is not None
    assert verdict.failure == Failure(kind=kind, message="bad token", step=3, rank=0)  # type: ignore[arg-type]


def test_running_out_of_memory_is_tried_again_with_the_smaller_batch() -> None:
    failed = [state(0, "failed", kind="out_of_memory", message="CUDA out of memory")]
    assert find_useless_restart([failed, [state(0)]], ranks=1) is None


# --- Other hosts ---------------------------------------------------------------------------------


def told_by(host: str, folder: Path, *, attempt: int = 2, since: float = 50.0) -> SharedFailure:
    return SharedFailure(folder=folder, attempt=attempt, host=host, since=since)


def test_the_cause_on_one_host_is_known_to_the_others(tmp_path: Path) -> None:
    cause = Failure(kind="data", message="shard 3 is corrupt", step=4, rank=9)
    told_by("algo-2", tmp_path).tell(cause, now=60.0)
    assert told_by("algo-1", tmp_path).read() == cause
    assert told_by("algo-2", tmp_path).read() is None, "its own"
    assert told_by("algo-1", tmp_path, attempt=3).read() is None
    assert told_by("algo-1", tmp_path, since=61.0).read() is None, "left by an earlier start"


def test_hosts_that_wait_for_another_ones_hang_leave_their_stacks_too() -> None:
    """All hosts are silent at once; whoever tells first must not keep the others from it."""
    start = [state(8, slot=0), state(9, "finished", slot=1)]
    hang = Failure(kind="infrastructure", message="no rank of this host came forward")
    assert follow(hang, start).dump == (start[0],)
    assert follow(Failure(kind="data", message="bad shard"), start).dump == ()


def test_among_many_hosts_all_but_the_one_with_the_cause_read_it(tmp_path: Path) -> None:
    hosts = [told_by(f"algo-{number}", tmp_path) for number in range(1, 65)]
    cause = Failure(kind="out_of_memory", message="CUDA out of memory", step=9, rank=300)
    hosts[37].tell(cause, now=60.0)
    assert [host.read() for host in hosts] == [cause] * 37 + [None] + [cause] * 26


def test_the_first_cause_stays(tmp_path: Path) -> None:
    first = Failure(kind="data", message="shard 3 is corrupt")
    told_by("algo-2", tmp_path).tell(first, now=60.0)
    told_by("algo-3", tmp_path).tell(Failure(kind="user", message="later"), now=61.0)
    assert told_by("algo-1", tmp_path).read() == first


def test_a_lost_connection_is_no_cause_but_a_killed_rank_is() -> None:
    peer_lost = state(0, "failed", kind="infrastructure", message="connection reset")
    assert lost_others_only([peer_lost, state(1, "abandoned")])
    assert not lost_others_only([peer_lost, state(1, "running")])
    assert not lost_others_only([peer_lost, state(1, "failed", kind="user")])


def test_a_host_without_a_cause_waits_for_one(tmp_path: Path) -> None:
    cause = Failure(kind="user", message="typo")

    def sleep(_: float) -> None:
        told_by("algo-2", tmp_path).tell(cause, now=60.0)

    assert launch.wait_for_cause(told_by("algo-1", tmp_path), sleep=sleep) == cause
    nobody = told_by("algo-1", tmp_path / "other")
    assert launch.wait_for_cause(nobody, patience_seconds=3, sleep=lambda _: None) is None


# --- The whole, with a script in place of torchrun -----------------------------------------------

HANGING = """
import os, sys, time
sys.path.insert(0, {scripts!r})
from trainer.rank_state import RankReporter
from trainer.signals import StopFlag
ranks = RankReporter.from_environment(os.environ)
StopFlag(ranks).install()
ranks.advance(4)
def stuck_in_a_collective():
    time.sleep(60)
stuck_in_a_collective()
"""


def test_a_hang_leaves_the_stacks_in_the_log_and_ends_the_attempt(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "worker.py"
    script.write_text(HANGING.format(scripts=str(SCRIPTS)))
    states = tmp_path / "states"
    states.mkdir()
    events: list[str] = []
    launcher = Launcher(states, announce=lambda event, **_: events.append(event), poll_seconds=0.05)
    began = time.monotonic()
    launcher.run(
        [sys.executable, str(script)],
        {"CDKB_RANK_STATE_DIR": str(states)},
        ranks=1,
        hang_seconds=0.5,
    )
    assert time.monotonic() - began < 30
    assert launcher.failure is not None
    assert (launcher.failure.kind, launcher.failure.step) == ("infrastructure", 4)
    assert "stuck_in_a_collective" in capfd.readouterr().err
    assert events == ["attempt_ended", "stacks"]
    assert [told.state for told in launcher.newest_states()] == ["abandoned"]

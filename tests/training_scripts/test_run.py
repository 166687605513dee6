"""A rank's end: the account first, and no waiting for others after a failure."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from cdk_blackwell.planning.contracts import ENV_RANK_STATE_DIR, Tier
from tests.training_scripts.tiny import tiny_spec, write_container
from trainer import run as run_module
from trainer.entry import EXIT_FAILED
from trainer.loop import Outcome
from trainer.rank_state import RankReporter, RankState, read_rank_states
from trainer.run import run
from trainer.signals import StopFlag


class Rank:
    """One rank with a scripted training and a process group that only notes what happens."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[str] = []
        self.states = folder / "states"
        self.states.mkdir()
        self._patch = monkeypatch
        self.environment = {
            "CDKB_ROOT": str(write_container(folder / "ml", tiny_spec())),
            ENV_RANK_STATE_DIR: str(self.states),
        }
        monkeypatch.setattr(dist, "init_process_group", lambda *_, **__: self.note("joined"))
        monkeypatch.setattr(dist, "destroy_process_group", lambda: self.note("left the group"))
        monkeypatch.setattr(dist, "get_rank", lambda: 0)
        monkeypatch.setattr(dist, "get_world_size", lambda: 1)

    @property
    def state(self) -> RankState:
        (state,) = read_rank_states(self.states)
        return state

    def note(self, event: str) -> None:
        self.events.append(f"{event} as {self.state.state}")

    def run(self, result: Outcome | BaseException) -> int:
        def train(*_: Any, **__: Any) -> Outcome:
            if isinstance(result, BaseException):
                raise result
            return result

        def leave(status: int) -> int:
            self.note("ended the process")
            return status

        self._patch.setattr(run_module, "train", train)
        return self.start("small", leave=leave)

    def start(self, tier: Tier, *, leave: Callable[[int], int]) -> int:
        ranks = RankReporter.from_environment(self.environment)
        ranks.report("running")
        return run(tier, self.environment, ranks=ranks, stop=StopFlag(ranks), leave=leave)


@pytest.fixture
def rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rank:
    return Rank(tmp_path, monkeypatch)


def test_a_failed_rank_says_so_and_never_leaves_the_group(rank: Rank) -> None:
    assert rank.run(KeyError("layers")) == EXIT_FAILED
    assert rank.events == ["joined as running", "ended the process as failed"]
    assert rank.state.kind == "user"
    assert "the training script failed" in rank.state.message


def test_a_failed_save_is_accounted_for(rank: Rank) -> None:
    """The checkpoint library's own exception is no ``Exception``."""
    from torch.distributed.checkpoint.api import CheckpointException

    error = CheckpointException("save", {0: (OSError(28, "No space", "/x"), None)})  # type: ignore[dict-item]
    assert rank.run(error) == EXIT_FAILED
    assert (rank.state.kind, rank.state.message) == (
        "user",
        "no space is left on the disk that holds /x",
    )


@pytest.mark.parametrize(("stopped", "state"), [(False, "finished"), (True, "stopped")])
def test_a_successful_rank_leaves_the_group_and_then_says_so(
    rank: Rank, stopped: bool, state: str
) -> None:
    assert rank.run(Outcome(step=3, stopped=stopped)) == 0
    assert rank.events == ["joined as running", "left the group as running"]
    assert rank.state.state == state


def test_another_tiers_run_is_refused(rank: Rank) -> None:
    assert rank.start("mid", leave=lambda status: status) == EXIT_FAILED
    assert rank.state.message == "run.json is of tier 'small'; this entrypoint trains 'mid'"
    assert not rank.events

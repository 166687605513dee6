"""What each rank leaves for the launcher: a small file that says how far it came and how it ended.

A rank that a signal killed cannot write anything, so its file still says ``running``: that is how
the launcher tells a lost rank from one that failed. Standard library only; the launcher imports it.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from cdk_blackwell.planning.contracts import ENV_RANK_STATE_DIR, FailureClass

STOP_MARKER: Final = "stop-requested"
"""Created there by the launcher before it passes SIGTERM on."""

State = Literal["running", "finished", "stopped", "failed", "abandoned"]


@dataclass(frozen=True, kw_only=True)
class RankState:
    """One rank's own account; ``abandoned`` means that it left because another rank was lost."""

    rank: int
    state: State
    step: int = -1
    kind: FailureClass | None = None
    message: str = ""
    time: float = 0.0
    """Seconds since the epoch."""


class RankReporter:
    """Writes this rank's file; does nothing where no launcher asked for it."""

    def __init__(self, *, rank: int, folder: Path | None) -> None:
        self.rank = rank
        self.step = -1
        self._folder = folder
        self._ended = False

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RankReporter:
        """Rank from torchrun's environment, folder from the launcher's."""
        folder = environment.get(ENV_RANK_STATE_DIR)
        return cls(rank=int(environment.get("RANK", "0")), folder=Path(folder) if folder else None)

    @property
    def stop_requested(self) -> bool | None:
        """Whether the launcher itself was told to stop; None without a launcher."""
        return None if self._folder is None else (self._folder / STOP_MARKER).exists()

    def report(self, state: State, *, kind: FailureClass | None = None, message: str = "") -> None:
        """Replace this rank's file; the first account of an end is the one that stays."""
        if self._folder is None or self._ended:
            return
        self._ended = state != "running"
        value = RankState(
            rank=self.rank,
            state=state,
            step=self.step,
            kind=kind,
            message=message,
            time=time.time(),
        )
        draft = self._folder / f".rank-{self.rank}.{os.getpid()}"
        draft.write_text(json.dumps(asdict(value)))
        draft.replace(self._folder / f"rank-{self.rank}.json")

    def advance(self, step: int) -> None:
        """Note the optimizer step reached."""
        self.step = step
        self.report("running")


def read_rank_states(folder: Path) -> list[RankState]:
    """All ranks' accounts, by rank."""
    states = [RankState(**json.loads(path.read_text())) for path in folder.glob("rank-*.json")]
    return sorted(states, key=lambda state: state.rank)

"""What each rank leaves for the launcher: a small file that says how far it came and how it ended.

A rank that a signal killed cannot write anything, so its file still says ``running``: that is how
the launcher tells a lost rank from one that failed. Standard library only; the launcher imports it.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal

from cdk_blackwell.planning.contracts import ENV_RANK_STATE_DIR, FailureClass

STOP_MARKER: Final = "stop-requested"
"""Created there by the launcher before it passes SIGTERM on."""

State = Literal["running", "finished", "stopped", "failed", "abandoned"]
Phase = Literal["starting", "training", "saving", "exporting"]
BEAT_SECONDS: Final = 1.0
"""Signs of life are written at most so often."""


@dataclass(frozen=True, kw_only=True)
class RankState:
    """One process's own account; ``abandoned`` means that it left because another was lost."""

    rank: int
    state: State
    step: int = -1
    kind: FailureClass | None = None
    message: str = ""
    time: float = 0.0
    """Of the last sign of life, seconds since the epoch."""
    pid: int = 0
    slot: int = 0
    """Which of the host's processes it is (torchrun's LOCAL_RANK); ranks move between hosts when
    workers are restarted, slots do not."""
    started: float = 0.0
    """When the process began, seconds since the epoch."""
    phase: Phase = "starting"
    saved_step: int = -1
    """Newest checkpoint that this process saw completed; -1 before the first."""


class RankReporter:
    """Writes this process's file; does nothing where no launcher asked for it."""

    def __init__(self, *, rank: int, folder: Path | None, slot: int | None = None) -> None:
        self.rank = rank
        self.step = -1
        self.phase: Phase = "starting"
        self.saved_step = -1
        self._slot = rank if slot is None else slot
        self._folder = folder
        self._started = time.time()
        self._written = 0.0
        self._ended = False
        # Two threads may tell the same end and then leave the process: the second one waits until
        # the first has written it. Reentrant, since a signal's handler interrupts a report.
        self._writing = threading.RLock()

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> RankReporter:
        """Rank and slot from torchrun's environment, folder from the launcher's."""
        folder = environment.get(ENV_RANK_STATE_DIR)
        rank = int(environment.get("RANK", "0"))
        return cls(
            rank=rank,
            folder=Path(folder) if folder else None,
            slot=int(environment.get("LOCAL_RANK", rank)),
        )

    @property
    def stop_requested(self) -> bool | None:
        """Whether the launcher itself was told to stop; None without a launcher."""
        return None if self._folder is None else (self._folder / STOP_MARKER).exists()

    def report(self, state: State, *, kind: FailureClass | None = None, message: str = "") -> None:
        """Replace this process's file; the first account of an end is the one that stays."""
        if self._folder is None:
            return
        with self._writing:
            if not self._ended:
                self._write(self._folder, state, kind, message)

    def _write(self, folder: Path, state: State, kind: FailureClass | None, message: str) -> None:
        self._ended = state != "running"
        self._written = time.time()
        value = RankState(
            rank=self.rank,
            state=state,
            step=self.step,
            kind=kind,
            message=message,
            time=self._written,
            pid=os.getpid(),
            slot=self._slot,
            started=self._started,
            phase=self.phase,
            saved_step=self.saved_step,
        )
        name = f"rank-{self.rank}.{os.getpid()}"
        draft = folder / f".{name}"
        draft.write_text(json.dumps(asdict(value)))
        draft.replace(folder / f"{name}.json")

    def start_at(self, step: int) -> None:
        """All is loaded; the first step, which may compile for minutes, is still starting."""
        self.step = step
        self.report("running")

    def advance(self, step: int) -> None:
        """Note the optimizer step reached."""
        self.step = step
        self.phase = "training"
        self.report("running")

    def beat(self) -> None:
        """Part of a step is done: a step may take minutes, a hang is told from it by this."""
        if time.time() - self._written >= BEAT_SECONDS:
            self.report("running")

    def enter(self, phase: Phase) -> None:
        """Say what this process does from now on; the watchdog has patience for slow phases."""
        self.phase = phase
        self.report("running")

    def saved(self, step: int) -> None:
        """A checkpoint is complete: a later restart in the cluster has not been for nothing."""
        self.saved_step = step
        self.report("running")


def read_rank_states(folder: Path) -> list[RankState]:
    """Every process's account, of all starts of the workers, in the order they began."""
    states = [RankState(**json.loads(path.read_text())) for path in folder.glob("rank-*.json")]
    return sorted(states, key=lambda state: (state.started, state.rank))


def by_start(states: Iterable[RankState]) -> list[list[RankState]]:
    """The processes of each start of the host's workers, oldest start first.

    torchrun begins a start only after the one before has ended, so a slot that is seen again, in
    the order of beginning, belongs to the next one. ``states`` come as `read_rank_states` has them.
    """
    starts: list[list[RankState]] = []
    for state in states:
        if not starts or any(state.slot == other.slot for other in starts[-1]):
            starts.append([])
        starts[-1].append(state)
    return [sorted(start, key=lambda state: state.rank) for start in starts]

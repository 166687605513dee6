"""One host's torchrun from start to end: signals passed on, hangs and useless restarts ended."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from cdk_blackwell.planning.contracts import Failure
from trainer.launching.shared_failure import SharedFailure
from trainer.launching.watch import (
    Verdict,
    find_hang,
    find_useless_restart,
    follow,
    out_of_time,
)
from trainer.rank_state import STOP_MARKER, RankState, by_start, read_rank_states
from trainer.signals import STACK_SIGNAL

POLL_SECONDS: Final = 1.0
DUMP_SECONDS: Final = 0.5
"""Between the requests for two ranks' stacks, so that they do not mix in the log."""
END_SECONDS: Final = 20.0
"""What ranks get to leave by themselves; those that hang in a driver never do."""

Announce = Callable[..., None]


class Launcher:
    """Runs torchrun, watches over it and passes signals on."""

    def __init__(
        self, states: Path, *, announce: Announce, poll_seconds: float = POLL_SECONDS
    ) -> None:
        self.states = states
        self.stop_requested = False
        self.failure: Failure | None = None
        """Why this launcher ended torchrun itself; None when it ended on its own."""
        self._announce = announce
        self._poll_seconds = poll_seconds
        self._process: subprocess.Popen[bytes] | None = None

    def install_signal_handlers(self) -> None:
        """SIGTERM comes from SageMaker, SIGINT from a person at a terminal."""
        signal.signal(signal.SIGTERM, self._forward)
        signal.signal(signal.SIGINT, self._forward)

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str],
        *,
        ranks: int,
        hang_seconds: float,
        others: SharedFailure | None = None,
        limit_seconds: float | None = None,
    ) -> int:
        """Start torchrun and wait; 0 at once when a stop was asked for before the start.

        ``others``: where other hosts tell of their failures. ``limit_seconds``: end it as hung when
        it takes longer altogether; None for no limit.
        """
        if self.stop_requested:
            return 0
        began = time.monotonic()
        # A group of its own: a Ctrl-C reaches this launcher alone, which then asks for a save.
        process = self._process = subprocess.Popen(command, env=dict(environment), process_group=0)
        if self.stop_requested:
            process.send_signal(signal.SIGTERM)
        while True:
            with suppress(subprocess.TimeoutExpired):
                status = process.wait(self._poll_seconds)
                if status < 0 and not self.stop_requested:
                    # Its ranks have sessions of their own and would go on. After a stop they save.
                    _send(signal.SIGKILL, self.newest_states())
                return status
            if self.stop_requested:
                continue  # SageMaker's own limit counts from here
            verdict = self._judge(ranks, hang_seconds, others)
            if verdict is None and limit_seconds and time.monotonic() - began > limit_seconds:
                verdict = out_of_time(self.newest_states(), limit_seconds=limit_seconds)
            if verdict is not None:
                self.failure = verdict.failure
                return self._end(process, verdict)

    def begin_anew(self, states: Path) -> None:
        """Forget the torchrun that ended; the next one's ranks report to ``states``.

        A stop that was asked for stays asked for.
        """
        self.states, self.failure, self._process = states, None, None

    def newest_states(self) -> list[RankState]:
        """Accounts of the workers' newest start."""
        starts = by_start(read_rank_states(self.states))
        return starts[-1] if starts else []

    def _judge(
        self, ranks: int, hang_seconds: float, others: SharedFailure | None
    ) -> Verdict | None:
        starts = by_start(read_rank_states(self.states))
        if not starts:
            return None
        told = others.read() if others else None
        if told is not None:
            return follow(told, starts[-1])
        return find_useless_restart(starts, ranks=ranks) or find_hang(
            starts[-1], now=time.time(), limit_seconds=hang_seconds
        )

    def _end(self, process: subprocess.Popen[bytes], verdict: Verdict) -> int:
        """Stacks first; then SIGTERM without the stop marker, which no rank answers by saving."""
        self._announce("attempt_ended", reason=verdict.failure.message)
        for state in verdict.dump:
            self._announce("stacks", rank=state.rank, pid=state.pid)
            _send(STACK_SIGNAL, [state])
            time.sleep(DUMP_SECONDS)
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            _send(signal.SIGKILL, self.newest_states())
        try:
            return process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()

    def _forward(self, number: int, frame: FrameType | None) -> None:
        """Only once: a second signal would break off torchrun's own waiting for the ranks."""
        if self.stop_requested:
            return
        self.stop_requested = True
        # The marker first: it tells the ranks that this SIGTERM asks for a save.
        (self.states / STOP_MARKER).touch()
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)


def _send(number: signal.Signals, states: Iterable[RankState]) -> None:
    for state in states:
        if state.state == "running" and state.pid:
            with suppress(ProcessLookupError):
                os.kill(state.pid, number)

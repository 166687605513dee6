"""SIGTERM asks for a stop between micro-batches; it never interrupts anything by itself."""

from __future__ import annotations

import faulthandler
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Final

from trainer.rank_state import RankReporter

EXIT_ABANDONED = 75
"""Exit status of a rank that leaves because another one was lost (sysexits' TEMPFAIL)."""
STACK_SIGNAL: Final = signal.SIGUSR1
"""Makes a rank print the stacks of all its threads, also while it waits in native code."""
STANDARD_ERROR: Final = 2
"""File descriptor: the log, whatever Python's own stream has become."""


class StopFlag:
    """Set by the first SIGTERM or SIGINT."""

    def __init__(self, reporter: RankReporter) -> None:
        self.requested = False
        self.requested_at = 0.0
        """On the monotonic clock; without meaning before a request."""
        self._reporter = reporter

    def seconds_since(self) -> float:
        """Since this rank was asked to stop; 0 when it was not."""
        return time.monotonic() - self.requested_at if self.requested else 0.0

    def install(self) -> None:
        """Take over both signals.

        Python runs handlers only when the main thread leaves native code, and a rank whose peer is
        lost may wait in a GPU collective for ever. So a thread is woken by the signal itself.
        """
        faulthandler.register(STACK_SIGNAL, file=STANDARD_ERROR, all_threads=True)
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)
        wake, woken = socket.socketpair()
        wake.setblocking(False)
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        # The sockets live as long as the thread, which lives as long as the process.
        threading.Thread(
            target=self._watch, args=(wake, woken), name="signals", daemon=True
        ).start()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if not self.requested:
            self.requested_at = time.monotonic()
        self.requested = True
        self._leave_if_abandoned()

    def _watch(self, wake: socket.socket, woken: socket.socket) -> None:
        watched = (signal.SIGTERM, signal.SIGINT)
        while numbers := woken.recv(1):
            if numbers[0] in watched:
                self._leave_if_abandoned()

    def _leave_if_abandoned(self) -> None:
        """Leave at once when nobody asked the launcher to stop.

        Then torchrun ends this rank because another one is gone, and no collective can complete.
        """
        if self._reporter.stop_requested is False:
            self._reporter.report("abandoned", message="another rank was lost")
            os._exit(EXIT_ABANDONED)


Agree = Callable[..., list[float]]


def agree(maximum: Agree, *flags: bool) -> list[bool]:
    """True on every rank for each flag that any rank has set."""
    return [value > 0 for value in maximum(*(float(flag) for flag in flags))]

"""SIGTERM asks for a stop at a step boundary; it never interrupts anything by itself."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import FrameType

from trainer.rank_state import RankReporter

EXIT_ABANDONED = 75
"""Exit status of a rank that leaves because another one was lost (sysexits' TEMPFAIL)."""


class StopFlag:
    """Set by the first SIGTERM or SIGINT."""

    def __init__(self, reporter: RankReporter) -> None:
        self.requested = False
        self._reporter = reporter

    def install(self) -> None:
        """Take over both signals."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._reporter.stop_requested is False:
            # Nobody asked the launcher to stop, so torchrun ends this rank because another one is
            # gone. No collective can complete any more: leave at once instead of waiting in one.
            self._reporter.report("abandoned", message="another rank was lost")
            os._exit(EXIT_ABANDONED)
        self.requested = True


Agree = Callable[..., list[float]]


def agree(maximum: Agree, *flags: bool) -> list[bool]:
    """True on every rank for each flag that any rank has set."""
    return [value > 0 for value in maximum(*(float(flag) for flag in flags))]

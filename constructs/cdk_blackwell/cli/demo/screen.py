"""What a person sees: one line per phase, live detail while it lasts, plain lines in a log."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console
from rich.markup import escape
from rich.status import Status

PLAIN_INTERVAL_SECONDS = 15.0
"""Without a terminal, detail is printed at most this often."""

WIDTH = 80
SPINNER = 4
"""Columns of the spinner and the spaces beside a phase's title."""


@dataclass
class Phase:
    """One phase while it runs."""

    title: str
    outcome: str = ""
    """Shown beside the title at the end."""
    _status: Status | None = None
    """Live detail on a terminal."""
    _console: Console | None = None
    """Plain lines where there is none."""
    _last: float = field(default_factory=time.monotonic)

    def detail(self, text: str) -> None:
        """Show what is going on now."""
        if self._status is not None:
            room = max(0, WIDTH - len(self.title) - SPINNER)
            self._status.update(f"{escape(self.title)} [dim]{escape(text[:room])}[/]")
        elif self._console is not None and time.monotonic() - self._last > PLAIN_INTERVAL_SECONDS:
            self._last = time.monotonic()
            self._console.print(f"  … {escape(text)}", highlight=False)


class Screen:
    """The demo's output; remembers how long each phase took."""

    def __init__(self, *, record: bool, stderr: bool = False) -> None:
        self.console = Console(
            record=record, width=WIDTH if record else None, highlight=False, stderr=stderr
        )
        # Apart from what is recorded, so that a picture shows results and not every frame.
        self._live = Console(stderr=True)
        self._plain = not self._live.is_terminal and not record
        self.seconds: dict[str, float] = {}

    def line(self, text: str, *, style: str | None = None) -> None:
        """A line of its own (rich markup allowed)."""
        self.console.print(text, style=style)

    def note(self, text: str) -> None:
        """Something told by another program, dimmed and indented."""
        for line in _wrap(text, WIDTH - 4):
            self.console.print(f"  [dim]{escape(line)}[/]")

    @contextmanager
    def phase(self, key: str, title: str) -> Iterator[Phase]:
        """A phase that is timed under ``key`` and ends with a tick or a cross."""
        started = time.monotonic()
        phase = Phase(title=title)
        status: Status | None = None
        if self._live.is_terminal:
            status = self._live.status(escape(title))
            status.start()
            phase._status = status
        elif self._plain:
            phase._console = self.console
            self.console.print(f"[dim]…[/] {escape(title)}")
        mark = "[red]✘[/]"
        try:
            yield phase
            mark = "[green]✔[/]"
        finally:
            if status is not None:
                status.stop()
            self.seconds[key] = round(time.monotonic() - started, 1)
            self._close(mark, phase, self.seconds[key])

    def _close(self, mark: str, phase: Phase, seconds: float) -> None:
        text = phase.title + (f": {phase.outcome}" if phase.outcome else "")
        tail = f"{seconds:6.1f} s"
        first, *rest = _wrap(text, WIDTH - len(tail) - 4)
        padding = " " * (WIDTH - len(tail) - 3 - len(first))
        self.console.print(f"{mark} {escape(first)}{padding}[dim]{tail}[/]")
        for line in rest:
            self.console.print(f"  {escape(line)}")


def _wrap(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


SPARKS = "▁▂▃▄▅▆▇█"


def sparkline(values: list[float], *, width: int) -> str:
    """``values`` as a row of at most ``width`` bars, lowest to highest."""
    if not values:
        return ""
    picked = [values[i * len(values) // width] for i in range(width)]
    if len(values) <= width:
        picked = values
    low, high = min(picked), max(picked)
    span = (high - low) or 1.0
    return "".join(SPARKS[round((value - low) / span * (len(SPARKS) - 1))] for value in picked)

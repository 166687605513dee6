"""Frames on a terminal: one that is overwritten, or one after the other where it is none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from cdk_blackwell.cli.watch.frame import Frame
from cdk_blackwell.cli.watch.screen import panel


@contextmanager
def show(console: Console, *, live: bool) -> Iterator[Callable[[Frame], None]]:
    """Give a function that shows a frame; ``live`` counts on a terminal only."""
    if not live or not console.is_terminal:
        yield lambda frame: console.print(panel(frame))
        return
    with Live(console=console, auto_refresh=False) as screen:
        yield lambda frame: screen.update(panel(frame), refresh=True)

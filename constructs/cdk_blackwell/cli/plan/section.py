"""The grid that every screen of the command is set in, 80 columns wide."""

from __future__ import annotations

from typing import Final

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

WIDTH: Final = 80
LABEL_WIDTH: Final = 10
BAR_WIDTH: Final = 30


def section(console: Console, label: str, content: RenderableType, *, style: str = "bold") -> None:
    """A label and beside it what it names."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(width=LABEL_WIDTH, no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_row(Text(label, style=style), content)
    console.print(grid)


def rule(console: Console, title: str) -> None:
    """A line that begins a further screen."""
    console.print()
    console.rule(Text(title, style="bold"), style="dim", align="left")

"""Checkpoints as a table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from cdk_blackwell.cli.checkpoints.found import Checkpoint


def checkpoints_table(run_id: str, found: Sequence[Checkpoint]) -> Table:
    """One line a checkpoint, within 80 columns."""
    table = Table(box=None, pad_edge=False, title=f"Checkpoints of run {run_id}")
    for name in ("Step", "GiB", "Files", "Age"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("Complete", overflow="fold")
    for each in found:
        table.add_row(
            str(each.step),
            f"{each.bytes / 2**30:,.2f}",
            str(len(each.sizes)),
            age(each.age_seconds),
            f"no: {escape(each.problem)}" if each.problem else "yes",
        )
    return table


def age(seconds: float) -> str:
    """``45 s``, ``12 min``, ``3.5 h`` or ``2.1 d``."""
    if seconds < 60:
        return f"{max(0.0, seconds):.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 86_400 else f"{seconds / 86_400:.1f} d"

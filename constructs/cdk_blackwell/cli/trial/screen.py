"""A trial report as a table."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from cdk_blackwell.planning.run_spec import Layout
from cdk_blackwell.planning.trial import TrialReport


def report_table(report: TrialReport) -> Table:
    """One line a candidate, within 80 columns; the winner is marked."""
    table = Table(box=None, pad_edge=False, title=f"Trial of {report.model.name}")
    table.add_column("", no_wrap=True)
    table.add_column("Layout", overflow="fold")
    table.add_column("Precision")
    for name in ("Batch", "Tokens/s", "MFU %", "GiB"):
        table.add_column(name, justify="right")
    table.add_column("Outcome", overflow="fold")
    for number, each in enumerate(report.candidates):
        table.add_row(
            "*" if number == report.winner else "",
            _layout(each.layout),
            each.recipe.precision,
            str(each.recipe.micro_batch_size),
            _number(each.tokens_per_second_per_gpu, ",.0f"),
            _number(each.mfu, ".1f"),
            _number(each.reserved_gib, ".1f"),
            each.outcome if not each.message else escape(f"{each.outcome}: {each.message}"),
        )
    return table


def _layout(layout: Layout) -> str:
    parts = {
        "shard": layout.shard_gpus,
        "x": layout.replicas,
        "cp": layout.context_parallel,
        "tp": layout.tensor_parallel,
    }
    return " ".join(f"{name}{size}" for name, size in parts.items() if size > 1) or "one GPU"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else f"{value:{form}}"

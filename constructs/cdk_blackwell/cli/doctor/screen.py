"""Findings as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.markup import escape
from rich.table import Table

from cdk_blackwell.cli.doctor.checks import Result
from cdk_blackwell.cli.doctor.finding import Verdict

_STYLES: Final[Mapping[Verdict, str]] = {"pass": "green", "warn": "yellow", "fail": "bold red"}


def results_table(results: Sequence[Result]) -> Table:
    """One row a check, within 80 columns; the fix stands below what was found."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for each in results:
        finding = each.finding
        text = finding.text + (f"\n-> {finding.fix}" if finding.fix else "")
        table.add_row(f"[{_STYLES[finding.verdict]}]{finding.verdict}[/]", each.check, escape(text))
    return table

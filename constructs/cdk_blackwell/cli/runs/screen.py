"""Runs as tables and as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape
from rich.table import Table

from cdk_blackwell.cli.aws.history import AttemptFacts, RunFacts, iso


def runs_table(runs: Sequence[RunFacts]) -> Table:
    """One line a run, within 80 columns."""
    table = Table(box=None, pad_edge=False)
    table.add_column("Run", no_wrap=True)
    table.add_column("Started (UTC)", no_wrap=True)
    table.add_column("Tries", justify="right")
    table.add_column("State", no_wrap=True)
    table.add_column("USD", justify="right")
    table.add_column("Reason", overflow="fold")
    for run in runs:
        table.add_row(
            run.run_id,
            _minute(run.started),
            _tries(run),
            run.state,
            _money(run.usd),
            escape(run.message or run.newest.reason or run.newest.secondary),
        )
    return table


def attempts_table(run: RunFacts) -> Table:
    """One line an attempt, within 80 columns."""
    table = Table(box=None, pad_edge=False, title=f"Run {run.run_id}: {run.state}")
    for name in ("Try", "Started (UTC)", "Status", "Step", "Hours", "USD", "Reason"):
        table.add_column(
            name, justify="right" if name in ("Try", "Step", "Hours", "USD") else "left"
        )
    for attempt in run.attempts:
        record = attempt.record
        table.add_row(
            str(record.attempt),
            _minute(record.claimed_at),
            attempt.status or record.state,
            str(record.last_complete_step) if record.state == "ended" else "",
            f"{attempt.billed_seconds / 3600:.2f}",
            _money(attempt.usd),
            escape(attempt.reason),
        )
    return table


def run_dict(run: RunFacts) -> dict[str, Any]:
    """Plain JSON types."""
    return {
        "run_id": run.run_id,
        "state": run.state,
        "message": run.message,
        "started": iso(run.started),
        "maximum_attempts": run.definition.maximum_attempts if run.definition else None,
        "usd": run.usd,
        "attempts": [_attempt_dict(attempt) for attempt in run.attempts],
    }


def _attempt_dict(attempt: AttemptFacts) -> dict[str, Any]:
    record = attempt.record
    return {
        "attempt": record.attempt,
        "job_name": record.job_name,
        "claimed": iso(record.claimed_at),
        "state": record.state,
        "status": attempt.status,
        "secondary_status": attempt.secondary,
        "cause": record.cause if record.state == "ended" else None,
        "reason": attempt.reason,
        "outcome": record.text,
        "action": record.action,
        "last_complete_step": record.last_complete_step if record.state == "ended" else None,
        "billed_seconds_per_instance": attempt.billed_seconds,
        "usd": attempt.usd,
    }


def _minute(seconds: float) -> str:
    return iso(seconds)[:16].replace("T", " ")


def _tries(run: RunFacts) -> str:
    most = f"/{run.definition.maximum_attempts}" if run.definition else ""
    return f"{run.counted_attempts}{most}"


def _money(usd: float | None) -> str:
    return "" if usd is None else f"{usd:,.2f}"

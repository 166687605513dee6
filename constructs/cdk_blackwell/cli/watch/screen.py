"""A frame as a panel of at most 80 columns."""

from __future__ import annotations

from rich.markup import escape
from rich.panel import Panel
from rich.table import Table

from cdk_blackwell.cli.checkpoints.screen import age
from cdk_blackwell.cli.watch.frame import Frame
from cdk_blackwell.lifecycle.handler.records import ordinal

WIDTH = 80


def panel(frame: Frame) -> Panel:
    """Names on the left, numbers on the right; what is not known is left out."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, text in _rows(frame):
        if text:
            grid.add_row(name, escape(text))
    return Panel(grid, title=f"Run {frame.run_id}: {frame.state}", width=WIDTH)


def _rows(frame: Frame) -> list[tuple[str, str]]:
    most = frame.maximum_attempts
    attempt = ordinal(frame.attempt, most) if most else f"{frame.attempt}"
    return [
        ("Attempt", f"{attempt}, {frame.job_name}"),
        ("Phase", f"{frame.phase}{f', {frame.last_event}' if frame.last_event else ''}"),
        ("Step", _step(frame)),
        ("Loss", _number(frame, "loss", ".4f")),
        ("Held out", _number(frame, "validation_loss", ".4f")),
        ("Speed", _number(frame, "tokens_per_second", ",.0f", " tokens/s")),
        ("MFU", _number(frame, "mfu", ".1f", " %")),
        ("Memory", _memory(frame)),
        ("Data wait", _number(frame, "data_wait_seconds", ".3f", " s per step")),
        ("Checkpoint", _checkpoint(frame)),
        ("Time left", "" if frame.eta_seconds is None else f"about {age(frame.eta_seconds)}"),
        ("Spend", _spend(frame)),
        ("Message", frame.message),
    ]


def _number(frame: Frame, key: str, form: str, unit: str = "") -> str:
    value = frame.metrics.get(key)
    return "" if value is None else f"{value:{form}}{unit}"


def _step(frame: Frame) -> str:
    if frame.step is None:
        return ""
    if not frame.steps:
        return f"{frame.step:,}"
    return f"{frame.step:,} of {frame.steps:,} ({100 * frame.step / frame.steps:.1f} %)"


def _memory(frame: Frame) -> str:
    allocated = _number(frame, "memory_allocated_gib", ".1f", " GiB allocated")
    reserved = _number(frame, "memory_reserved_gib", ".1f", " GiB reserved")
    return ", ".join(each for each in (allocated, reserved) if each)


def _checkpoint(frame: Frame) -> str:
    if not frame.checkpoint_step:
        return "none yet"
    old = frame.checkpoint_age_seconds
    return f"step {frame.checkpoint_step:,}" + ("" if old is None else f", {age(old)} old")


def _spend(frame: Frame) -> str:
    if frame.spend_usd is None:
        return ""
    most = "" if frame.ceiling_usd is None else f" of at most {frame.ceiling_usd:,.2f}"
    return f"{frame.spend_usd:,.2f}{most} USD"

"""``--explain``: the five groups of decisions, what else there was, and what is recommended."""

from __future__ import annotations

from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from cdk_blackwell.cli.plan.section import rule, section
from cdk_blackwell.cli.plan.words import number, spaced
from cdk_blackwell.planning.decisions import Decision
from cdk_blackwell.planning.neighbours import describe_layout
from cdk_blackwell.planning.plan import Plan

TITLES: Final = {
    "batch": "Batch size and sequence length",
    "precision": "Precision",
    "activation_checkpointing": "Activation checkpointing",
    "distribution": "Distributed training",
    "monitoring": "GPU monitoring",
}


def print_explanations(console: Console, plan: Plan) -> None:
    """Each decision in the order of the five groups."""
    for place, decision in enumerate(plan.decisions, start=1):
        rule(console, f"{place}. {TITLES.get(decision.group, spaced(decision.group))}")
        section(console, "Chosen", Text(_values(decision.values)))
        section(console, "Why", Text(decision.reason))
        section(console, "Advice", _advice(decision))
        if decision.alternatives:
            section(console, "Instead", _alternatives(decision, plan))


def _values(values: dict[str, Any]) -> str:
    return "; ".join(f"{spaced(name)} {_value(value)}" for name, value in values.items())


def _value(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_value, value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, (int, float)) else spaced(str(value))


def _advice(decision: Decision) -> Text:
    verdict = ("followed", "green") if decision.follows else ("departed from", "yellow")
    return Text.assemble(decision.recommendation, " (", verdict, ")")


def _alternatives(decision: Decision, plan: Plan) -> Table:
    """Everything else as chosen; the first row is the choice."""
    table = Table(box=None, pad_edge=False, padding=(0, 1), header_style="dim", show_edge=False)
    table.add_column("", ratio=1)
    table.add_column("GiB per GPU", justify="right", no_wrap=True)
    table.add_column("tokens/s per GPU", justify="right", no_wrap=True)
    table.add_column("", justify="right", min_width=6, no_wrap=True)
    described = describe_layout(plan.layout).split(", ")
    chosen = plan.throughput.tokens_per_second_per_gpu
    table.add_row(
        "as chosen", f"{plan.memory.required_gib:.1f}", f"{chosen:,.0f}", "", style="bold"
    )
    for other in decision.alternatives:
        speed = other.tokens_per_second_per_gpu
        table.add_row(
            Text(
                _difference(other.value, described)
                if decision.group == "distribution"
                else other.value
            ),
            Text(f"{other.required_gib:.1f}", style="" if other.fits else "red"),
            f"{speed:,.0f}",
            f"{speed / chosen - 1:+.0%}" if other.fits else Text("no fit", style="red"),
        )
    return table


def _difference(value: str, chosen: list[str]) -> str:
    """Of a layout's description only what differs from the chosen one."""
    parts = value.split(", ")
    added = [part for part in parts if part not in chosen]
    left_out = [part for part in chosen if part not in parts]
    return ", ".join(added) or f"without {', '.join(left_out)}"

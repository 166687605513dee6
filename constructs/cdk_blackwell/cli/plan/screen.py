"""A plan at a glance, 80 columns wide."""

from __future__ import annotations

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cdk_blackwell.cli.plan.bars import bar, gauge
from cdk_blackwell.cli.plan.flags import command_words, in_flags
from cdk_blackwell.cli.plan.layout_picture import layout_picture, layout_words
from cdk_blackwell.cli.plan.section import BAR_WIDTH, WIDTH, section
from cdk_blackwell.cli.plan.verify import Verification
from cdk_blackwell.cli.plan.words import (
    duration,
    kernel_words,
    parameters,
    plural,
    spaced,
    tokens,
    usd,
)
from cdk_blackwell.planning.errors import DoesNotFitError
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.plan import Plan
from cdk_blackwell.planning.request import Change
from cdk_blackwell.planning.tiers import TIERS

_GOOD, _BAD, _PART, _MARGIN = "green", "red", "cyan", "yellow"


def print_plan(console: Console, plan: Plan, *, notes: tuple[str, ...] = ()) -> None:
    """The default screen; ``notes`` are further warnings."""
    print_header(console, plan)
    section(console, "Recipe", _recipe(plan))
    section(console, "Batch", _batch(plan))
    section(console, "Layout", _layout(plan))
    section(console, "Memory", _memory(plan))
    section(console, "Speed", _speed(plan))
    section(console, "Cost", _cost(plan))
    for assumption in plan.assumptions:
        section(console, "Default", Text(assumption, style="dim"), style="dim")
    for warning in (*notes, *plan.warnings):
        section(console, "Warning", Text(warning), style="yellow")


def print_header(console: Console, plan: Plan) -> None:
    """Model and tier."""
    model = plan.model
    title = f"{TIERS[plan.tier].construct}  predicted"
    left = Text.assemble(
        (model.name, "bold cyan"),
        f"  {parameters(model.parameter_count)} parameters, {model.num_hidden_layers} layers",
    )
    right = Text(title, style="dim")
    left.append(" " * max(1, WIDTH - left.cell_len - right.cell_len))
    console.print(left.append_text(right))
    console.print("─" * WIDTH, style="dim")


def _recipe(plan: Plan) -> Text:
    recipe = plan.recipe
    loss = f"in {recipe.loss_chunks} pieces" if recipe.loss_chunks > 1 else "in one piece"
    return Text.assemble(
        (recipe.precision, "bold"),
        ", checkpointing ",
        (recipe.activation_checkpointing, "bold"),
        f", loss {loss}, {'compiled blocks' if recipe.compile else 'plain (eager) blocks'}",
    )


def _batch(plan: Plan) -> Text:
    recipe, layout = plan.recipe, plan.layout
    sequences = recipe.global_batch_tokens // recipe.sequence_length
    steps = sequences // layout.data_parallel // recipe.micro_batch_size
    text = Text.assemble(
        f"{recipe.global_batch_tokens:,} tokens a step = "
        f"{plural(sequences, 'sequence')} of {recipe.sequence_length:,}\n",
        "micro-batch ",
        (f"{recipe.micro_batch_size}", "bold"),
        f" x {plural(steps, 'pass', 'passes')} x "
        f"{plural(layout.data_parallel, 'data-parallel rank')}",
    )
    if recipe.batch_growth:
        grown = ", ".join(map(str, recipe.batch_growth))
        text.append(f"\ngrows to {grown} while measured memory allows")
    return text


def _layout(plan: Plan) -> Group:
    layout = plan.layout
    nodes, rest = divmod(layout.gpus, P6_B200.gpus)
    size = plural(layout.gpus, "GPU")
    if not rest:
        size = f"{plural(nodes, 'node')} of {P6_B200.gpus} GPUs"
    lines = [Text.assemble((size, "bold"), f": {layout_words(layout)}")]
    if not layout.reshard_after_forward:
        lines.append(Text("gathered weights are kept from a step's first micro-batch to its last"))
    if layout.gradient_sync == "step":
        lines.append(Text("gradients are reduced once per step"))
    return Group(*lines, layout_picture(layout))


def _memory(plan: Plan) -> Group:
    memory = plan.memory
    total = memory.required_gib
    scale = max(total, memory.budget_gib)
    style = _GOOD if memory.fits else _BAD
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=24, no_wrap=True)
    table.add_column(justify="right", min_width=6, no_wrap=True)
    table.add_column(no_wrap=True)
    start = 0.0
    for name, gib in memory.parts_gib.items():
        drawn = bar(gib, scale=scale, width=BAR_WIDTH, style=_PART, start=start)
        table.add_row(spaced(name), f"{gib:.1f}", drawn)
        start += gib
    if memory.margin_gib:
        drawn = bar(memory.margin_gib, scale=scale, width=BAR_WIDTH, style=_MARGIN, start=start)
        table.add_row("margin of error", f"{memory.margin_gib:.1f}", drawn)
    table.add_row(
        Text(f"reserved, {'with margin' if memory.margin_gib else 'upper bound'}", style="bold"),
        Text(f"{total:.1f}", style=f"bold {style}"),
        gauge(total, limit=memory.budget_gib, scale=scale, width=BAR_WIDTH, style=style),
    )
    verdict = "fits" if memory.fits else f"{total - memory.budget_gib:.1f} GiB too much"
    table.add_row(
        "budget",
        f"{memory.budget_gib:.1f}",
        Text(f"{total / memory.budget_gib:.0%}: {verdict}", style),
    )
    return Group(
        Text("GiB per GPU", style="dim"),
        table,
        Text(
            f"peak of live tensors {memory.allocated_gib:.1f} GiB, at: {memory.peak_moment}; for "
            f"{kernel_words(memory.kernels)} kernels",
            style="dim",
        ),
    )


def _speed(plan: Plan) -> Text:
    speed = plan.throughput
    each = speed.tokens_per_second_per_gpu
    text = Text.assemble(
        (f"{each:,.0f} tokens/s per GPU", "bold"),
        f", {each * plan.layout.gpus:,.0f} in all; MFU {speed.mfu:.0%}; bound by {speed.bound}",
    )
    first, *others = speed.assumptions
    text.append(f"\nassumed: {first}", style="dim")
    if others:
        text.append(f" ({len(others)} more with --details)", style="dim")
    return text


def _cost(plan: Plan) -> Text:
    cost = plan.cost
    text = Text.assemble(
        f"{tokens(plan.train_tokens)} tokens: ",
        (duration(cost.total_hours), "bold"),
        f", of which {duration(cost.lost_hours)} expected to be lost to "
        f"failures ({_expected(cost.expected_failures)}) and to checkpoints\n",
    )
    if cost.total_usd is None or cost.hourly_price_usd is None:
        text.append("price not given", style="yellow")
        node_hours = cost.total_hours * plan.instance_count
        return text.append(f" (--hourly-price-usd): {node_hours:,.0f} node-hours")
    text.append(usd(cost.total_usd), style="bold")
    return text.append(f" at your {cost.hourly_price_usd:,.2f} USD per node and hour")


def _expected(count: float) -> str:
    """An expected number of events, which is often far below one."""
    return f"{count:,.0f}" if count >= 10 else f"{count:.1f}" if count >= 0.1 else "below 0.1"


def print_refusal(console: Console, refusal: DoesNotFitError) -> None:
    """What would pass, as options; the message itself goes to stderr with the exit code."""
    console.print()
    if not refusal.changes:
        section(console, "Refused", Text(in_flags(str(refusal))), style="bold red")
        return
    table = Table.grid(padding=(0, 2))
    for change in refusal.changes:
        table.add_row(
            Text(command_words(change.settings), style="bold"),
            Text(_after(change), style="dim"),
        )
    section(console, "Refused", Text("each of these changes alone passes:"), style="bold red")
    section(console, "", table)


def _after(change: Change) -> str:
    needed = f"{change.required_gib:.1f} GiB per GPU"
    return needed if change.total_usd is None else f"{needed}, {usd(change.total_usd)}"


def print_verification(console: Console, plan: Plan, found: Verification) -> None:
    """Predicted against the memory tracker's peak of live tensors."""
    console.print()
    table = Table.grid(padding=(0, 2))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_row("predicted, live tensors", f"{found.predicted_gib:.2f} GiB")
    table.add_row("measured, live tensors", f"{found.measured_gib:.2f} GiB")
    table.add_row(Text("difference", style="bold"), Text(f"{found.difference:+.1%}", style="bold"))
    section(console, "Verified", Group(table, Text(found.method, style="dim")), style="bold green")

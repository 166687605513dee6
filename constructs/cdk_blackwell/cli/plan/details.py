"""``--details``: where the time goes, both FLOP conventions, and what every number rests on."""

from __future__ import annotations

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from cdk_blackwell.cli.plan.bars import bar
from cdk_blackwell.cli.plan.section import BAR_WIDTH, rule, section
from cdk_blackwell.cli.plan.words import duration, kernel_words, plural, spaced
from cdk_blackwell.planning.plan import Plan
from cdk_blackwell.planning.storage_needs import storage_needs
from cdk_blackwell.planning.throughput import megatron_class


def print_details(console: Console, plan: Plan) -> None:
    """All that the default screen leaves out."""
    rule(console, "Details")
    section(console, "Step", _step(plan))
    section(console, "FLOPs", _flops(plan))
    section(console, "Compare", _compare(plan))
    section(console, "Memory", _memory(plan))
    section(console, "Storage", _storage(plan))
    section(console, "Sources", _listed((*plan.throughput.assumptions, *plan.assumptions)))


def _step(plan: Plan) -> Group:
    speed = plan.throughput
    table = Table.grid(padding=(0, 1))
    table.add_column(min_width=24, no_wrap=True)
    table.add_column(justify="right", min_width=9, no_wrap=True)
    table.add_column(no_wrap=True)
    longest = max(speed.phases.values())
    for name, seconds in speed.phases.items():
        table.add_row(
            spaced(name),
            f"{1000 * seconds:,.0f} ms",
            bar(seconds, scale=longest, width=BAR_WIDTH, style="cyan"),
        )
    table.add_row("one optimizer step", f"{1000 * speed.step_seconds:,.0f} ms", "", style="bold")
    passes = plural(speed.micro_batches, "pass", "passes")
    return Group(
        table,
        Text(
            f"{passes}; another {1000 * speed.hidden_seconds:,.0f} ms "
            f"of communication run behind computation. Each GPU moves {speed.nvlink_gb:,.1f} GB "
            f"over NVLink and {speed.efa_gb:,.1f} GB over EFA a step, in each direction.",
            style="dim",
        ),
    )


def _flops(plan: Plan) -> Text:
    speed = plan.throughput
    return Text(
        f"{speed.flops_per_token / 1e9:,.2f} GFLOP a token counting half of the attention matrix "
        f"(causal): MFU {speed.mfu:.1%}\n"
        f"{speed.flops_per_token_palm / 1e9:,.2f} GFLOP counting all of it (PaLM): MFU "
        f"{speed.mfu_palm:.1%}\n"
        f"with recomputation (causal): HFU {speed.hfu:.1%}"
    )


def _compare(plan: Plan) -> Text:
    band = megatron_class(plan.model, layout=plan.layout, recipe=plan.recipe)
    return Text(
        f"tuned Megatron-class stacks reach {band.low:,.0f} to {band.high:,.0f} tokens/s per GPU "
        "with the same layout and recipe, by published runs; this trainer is not such a stack"
    )


def _memory(plan: Plan) -> Text:
    memory = plan.memory
    return Text(
        f"live tensors peak at {memory.allocated_gib:.2f} GiB ({memory.peak_moment}); counted for "
        f"{kernel_words(memory.kernels)} kernels"
    )


def _storage(plan: Plan) -> Text:
    cost = plan.cost
    speed = plan.throughput.tokens_per_second_per_gpu * plan.gpus
    needs = storage_needs(
        plan.model,
        instance_count=plan.instance_count,
        dataset_tokens=plan.train_tokens,
        tokens_per_second=speed,
        interval_seconds=cost.checkpoint_interval_seconds,
    )
    return Text(
        f"a checkpoint of {cost.checkpoint_gib:,.0f} GiB every "
        f"{duration(cost.checkpoint_interval_seconds / 3600)}, written behind training in "
        f"{needs.checkpoint_write_seconds:,.0f} s\n"
        f"FSx for Lustre that also holds the dataset: {needs.capacity_gib:,} GiB at "
        f"{needs.throughput_per_tib:,} MB/s per TiB ({needs.why})"
    )


def _listed(lines: tuple[str, ...]) -> Table:
    table = Table.grid(padding=(0, 1))
    table.add_column(width=1)
    table.add_column(ratio=1)
    for line in lines:
        table.add_row("-", Text(line))
    return table

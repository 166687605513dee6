"""The numbers behind the pictures: the planner's sweeps, as rows to draw."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from cdk_blackwell.cli.plan.charts.rows import ChartData, MemoryColumn, NodePoint
from cdk_blackwell.cli.plan.layout_picture import layout_words
from cdk_blackwell.cli.plan.words import parameters, plural
from cdk_blackwell.planning.plan import Plan
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.sweeps import memory_by_micro_batch, speed_by_nodes
from cdk_blackwell.planning.tiers import INSTANCE_COUNTS, TIERS


def chart_data(plan: Plan, arguments: dict[str, Any]) -> ChartData:
    """``arguments`` are those of ``make_plan`` that gave the plan."""
    recipe = plan.recipe
    memory = tuple(
        MemoryColumn(
            micro_batch_size=point.micro_batch_size,
            parts_gib=point.parts_gib | ({"margin": point.margin_gib} if point.margin_gib else {}),
            chosen=point.chosen,
        )
        for point in memory_by_micro_batch(plan)
    )
    return ChartData(
        title=f"{plan.model.name}: {parameters(plan.model.parameter_count)} parameters, "
        f"{recipe.sequence_length:,} tokens, {plural(plan.instance_count, 'node')}",
        subtitle=f"{TIERS[plan.tier].construct}, {recipe.precision}, checkpointing "
        f"{recipe.activation_checkpointing}, {layout_words(plan.layout)}. Predicted, not measured.",
        memory=memory,
        budget_gib=plan.memory.budget_gib,
        nodes=tuple(_nodes(plan, Request(**arguments))),
        priced=plan.cost.usd is not None,
    )


def _nodes(plan: Plan, request: Request) -> Iterator[NodePoint]:
    """Of each number of nodes and of GPUs that share the weights, the fastest that fits."""
    tier = TIERS[plan.tier]
    counts = {count for count in INSTANCE_COUNTS if tier.allows_instances(count)}
    drawn: set[tuple[int, int]] = set()
    for point in speed_by_nodes(request, instance_counts=sorted(counts | {plan.instance_count})):
        layout = point.candidate.layout
        place = (point.instance_count, layout.shard_gpus)
        if place in drawn:
            continue
        drawn.add(place)
        yield NodePoint(
            nodes=point.instance_count,
            shard_gpus=layout.shard_gpus,
            tokens_per_second=point.tokens_per_second,
            cost=point.usd if point.usd is not None else point.hours * point.instance_count,
            description=layout_words(layout),
            chosen=place == (plan.instance_count, plan.layout.shard_gpus),
        )

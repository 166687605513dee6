"""Numbers behind the pictures: memory against micro-batch, speed and cost against nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from cdk_blackwell.planning.cost import estimate_cost
from cdk_blackwell.planning.efficiency import Efficiency
from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.plan import Plan
from cdk_blackwell.planning.predictions import Candidate, predict_memory
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.search import search_layouts
from cdk_blackwell.planning.tiers import INSTANCE_COUNTS
from cdk_blackwell.planning.wish import make_wish

MOST_SIZES: Final = 10


@dataclass(frozen=True, kw_only=True)
class MemoryPoint:
    """Predicted GiB per GPU at one micro-batch size."""

    micro_batch_size: int
    reserved_gib: float
    allocated_gib: float
    parts_gib: dict[str, float]
    margin_gib: float
    budget_gib: float
    fits: bool
    chosen: bool
    """The plan's own size."""


def memory_by_micro_batch(plan: Plan) -> tuple[MemoryPoint, ...]:
    """The plan with all but the size as it is, at sizes 1, 2, 4, ... and its own, to just past the
    budget."""
    chosen = plan.recipe.micro_batch_size
    sizes = sorted({chosen, *(1 << shift for shift in range(MOST_SIZES))})
    points: list[MemoryPoint] = []
    for size in sizes:
        recipe = replace(
            plan.recipe,
            micro_batch_size=size,
            batch_growth=(),
            # As many micro-batches per step as now, so that the size is all that differs.
            global_batch_tokens=plan.recipe.global_batch_tokens // chosen * size,
        )
        memory = predict_memory(plan.model, plan.layout, recipe)
        points.append(
            MemoryPoint(
                micro_batch_size=size,
                reserved_gib=memory.reserved_gib,
                allocated_gib=memory.allocated_gib,
                parts_gib=memory.parts_gib,
                margin_gib=memory.margin_gib,
                budget_gib=memory.budget_gib,
                fits=memory.fits,
                chosen=size == chosen,
            )
        )
        if not memory.fits and size >= chosen:
            break
    return tuple(points)


@dataclass(frozen=True, kw_only=True)
class NodesPoint:
    """The best of one kind of layout on one number of instances."""

    instance_count: int
    candidate: Candidate
    best: bool
    """Fastest of all kinds on these instances."""
    tokens_per_second: float
    """Over all GPUs."""
    hours: float
    """For all training tokens, with what is expected to be lost, as a plan's table tells it."""
    usd: float | None
    """For these hours; None when no price was given."""


def speed_by_nodes(
    request: Request, *, instance_counts: Sequence[int] = INSTANCE_COUNTS, kinds: int = 3
) -> tuple[NodesPoint, ...]:
    """For each number of instances the best ``kinds`` ways to divide the ranks that fit.

    Numbers on which nothing fits, or which the request's fixed values do not divide, are left out.
    A batch that was not given is the default for each number of instances.
    """
    efficiency = None if request.measured is None else Efficiency.measured(request.measured)
    points: list[NodesPoint] = []
    for count in instance_counts:
        try:
            wish = make_wish(
                replace(request, instance_count=count, gpus=None), gpus=count * P6_B200.gpus
            )
        except PlanError:
            continue
        best_of_kind: dict[tuple[int, ...], Candidate] = {}
        for candidate in search_layouts(wish, efficiency).fitting:
            layout = candidate.layout
            kind = (layout.shard_gpus, layout.context_parallel, layout.tensor_parallel)
            best_of_kind.setdefault(kind, candidate)
        for place, candidate in enumerate(list(best_of_kind.values())[:kinds]):
            speed = candidate.tokens_per_second_per_gpu * wish.gpus
            cost = estimate_cost(
                model=wish.model,
                train_tokens=wish.train_tokens,
                tokens_per_second=speed,
                instance_count=count,
                hourly_price_usd=request.hourly_price_usd,
            )
            points.append(
                NodesPoint(
                    instance_count=count,
                    candidate=candidate,
                    best=place == 0,
                    tokens_per_second=speed,
                    hours=cost.total_hours,
                    usd=cost.total_usd,
                )
            )
    return tuple(points)

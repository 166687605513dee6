"""What a trial run tries: a few candidates that are fast by prediction and differ from each other.

Neighbours of the best plan differ by less than the prediction's own error, so the first ten of the
ranking teach little. Each candidate after the first is the fastest that brings a value not tried
yet: another way to checkpoint, micro-batch, shard, context or tensor parallelism, or exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.predictions import Candidate, predict
from cdk_blackwell.planning.recipes import RecipeOverrides
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.run_spec import Layout, Recipe, RunSpec
from cdk_blackwell.planning.search import near_best
from cdk_blackwell.planning.wish import make_wish

DEFAULT_COUNT: Final = 5
WITHIN: Final = 0.25
"""Predictions so far below the best are not worth minutes of a cluster."""
MEASURED_STEPS: Final = 5
"""Most optimizer steps to measure; as many go before them as warm-up."""
START_SECONDS: Final = 240.0
"""Kept of a candidate's share of the time for starting processes and compiling (assumed)."""


def trial_candidates(spec: RunSpec, count: int = DEFAULT_COUNT) -> list[tuple[Layout, Recipe]]:
    """At most ``count`` layouts and recipes, the run's own first.

    All keep the run's model, precision, sequence length, global batch, optimizer and GPUs. A run
    whose values the planner would refuse is tried alone.
    """
    if count < 1:
        raise ValueError(f"count is {count}; a trial needs at least 1 candidate")
    recipe = spec.recipe
    own = predict(spec.model, spec.layout, recipe)
    request = Request(
        model=spec.model,
        sequence_length=recipe.sequence_length,
        tier=spec.tier,
        global_batch_tokens=recipe.global_batch_tokens,
        train_tokens=spec.train_tokens,
        gpus=spec.layout.gpus,
        overrides=RecipeOverrides(
            precision=recipe.precision,
            compile=recipe.compile,
            seed=recipe.seed,
            bf16_edge_blocks=recipe.bf16_edge_blocks,
            optimizer=recipe.optimizer,
        ),
    )
    try:
        found = near_best(make_wish(request, gpus=spec.layout.gpus), within=WITHIN)
    except PlanError:
        found = ()
    chosen = _diverse(own, found, count)
    return [(candidate.layout, candidate.recipe) for candidate in chosen]


def measured_steps(spec: RunSpec, candidates: int, *, seconds: float) -> int:
    """Steps to measure per candidate, so that all of them end within ``seconds``.

    From the predicted step time on p6-b200, counted twice over for warm-up; at least 1.
    """
    speed = predict(spec.model, spec.layout, spec.recipe).tokens_per_second_per_gpu
    step_seconds = spec.recipe.global_batch_tokens / (speed * spec.layout.gpus)
    share = seconds / candidates - START_SECONDS
    return max(1, min(MEASURED_STEPS, int(share / (2 * step_seconds))))


def as_trial_spec(
    spec: RunSpec, layout: Layout, recipe: Recipe, *, run_id: str, steps: int
) -> RunSpec:
    """The run of one candidate: ``steps`` of warm-up, as many measured; no growth, no export."""
    return replace(
        spec,
        run_id=run_id,
        layout=layout,
        recipe=replace(recipe, batch_growth=()),
        train_tokens=2 * steps * recipe.global_batch_tokens,
        checkpoint=replace(spec.checkpoint, export=False),
        data=replace(spec.data, validation_sequences=1),
        limits=replace(
            spec.limits,
            in_cluster_restarts=0,
            log_interval_steps=steps,
            validation_interval_steps=2 * steps,
            loss_policy="stop",
        ),
    )


def _traits(candidate: Candidate) -> frozenset[tuple[str, object]]:
    layout, recipe = candidate.layout, candidate.recipe
    return frozenset(
        {
            ("activation_checkpointing", recipe.activation_checkpointing),
            ("micro_batch_size", recipe.micro_batch_size),
            ("reshard_after_forward", layout.reshard_after_forward),
            ("gradient_sync", layout.gradient_sync),
            ("context_parallel", (layout.context_parallel, layout.ulysses)),
            ("tensor_parallel", layout.tensor_parallel),
            ("shard_gpus", layout.shard_gpus),
        }
    )


def _diverse(own: Candidate, found: Sequence[Candidate], count: int) -> list[Candidate]:
    """The run's own, then the fastest with a trait not tried yet, then the fastest of the rest."""
    chosen = [own]
    tried = set(_traits(own))
    rest = [c for c in found if _traits(c) != _traits(own)]
    while rest and len(chosen) < count:
        best = next((c for c in rest if _traits(c) - tried), rest[0])
        chosen.append(best)
        tried |= _traits(best)
        rest.remove(best)
    return chosen

"""From a wish (model, sequence length, batch, tokens) to a checked plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.cost import CostEstimate, estimate_cost
from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.memory import MemoryEstimate, estimate_memory
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import (
    CHECKPOINTING_LADDER,
    MAXIMUM_SEQUENCE_LENGTH,
    NO_OVERRIDES,
    SMALL_TIER_PARAMETERS,
    RecipeOverrides,
    default_loss_chunks,
    default_optimizer,
)
from cdk_blackwell.planning.run_spec import Layout, Recipe
from cdk_blackwell.planning.throughput import ThroughputEstimate, estimate_throughput

MAXIMUM_TOKENS: Final = 10**15
"""Above any run of this size class; catches slips in the number of zeros."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything chosen and predicted for one job; ``to_dict`` is what ``plan --json`` prints."""

    tier: Tier
    model: ModelShape
    recipe: Recipe
    layout: Layout
    memory: MemoryEstimate
    throughput: ThroughputEstimate
    cost: CostEstimate
    warnings: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "model": {**asdict(self.model), "parameters": self.model.parameter_count},
            "tier": self.tier,
            "recipe": asdict(self.recipe),
            "layout": asdict(self.layout),
            "micro_batch_size": self.recipe.micro_batch_size,
            "activation_checkpointing": self.recipe.activation_checkpointing,
            "precision": self.recipe.precision,
            "memory": {**asdict(self.memory), "fits": self.memory.fits},
            "throughput": asdict(self.throughput),
            "cost": asdict(self.cost),
            "warnings": list(self.warnings),
        }


def make_plan(
    *,
    tier: Tier,
    model: ModelShape,
    sequence_length: int,
    global_batch_tokens: int,
    train_tokens: int,
    instance_count: int = 1,
    overrides: RecipeOverrides = NO_OVERRIDES,
    hourly_price_usd: float | None = None,
) -> Plan:
    """Choose what was left open, predict the rest, and refuse what cannot work (PlanError)."""
    if tier != "small":
        raise PlanError(f"tier {tier!r} cannot be planned yet: this version has 'small' only")
    if model.parameter_count > SMALL_TIER_PARAMETERS:
        raise PlanError(
            f"{model.name} has {model.parameter_count / 1e9:.2f}B parameters; SmallModelJob takes "
            f"up to {SMALL_TIER_PARAMETERS / 1e9:.0f}B: use MidModelJob (7B-30B)"
        )
    if instance_count != 1:
        raise PlanError(
            f"instance_count is {instance_count!r}; SmallModelJob runs on 1 instance, which is "
            "enough up to 7B parameters: leave instance_count out"
        )
    _check_whole("sequence_length", sequence_length, MAXIMUM_SEQUENCE_LENGTH)
    _check_whole("global_batch_tokens", global_batch_tokens, MAXIMUM_TOKENS)
    _check_whole("train_tokens", train_tokens, MAXIMUM_TOKENS)
    if hourly_price_usd is not None and not 0 < hourly_price_usd < 1e6:
        raise PlanError(f"hourly_price_usd is {hourly_price_usd!r}; a price above 0 is needed")

    gpus = instance_count * P6_B200.gpus
    share = _sequences_per_gpu(global_batch_tokens, sequence_length, gpus)
    layout = Layout(
        shard_gpus=P6_B200.gpus,
        replicas=instance_count,
        context_parallel=1,
        tensor_parallel=1,
    )
    if overrides.loss_chunks is not None:
        _check_whole("loss_chunks", overrides.loss_chunks, global_batch_tokens)
    recipe, memory = _fit(
        model,
        sequence_length=sequence_length,
        global_batch_tokens=global_batch_tokens,
        train_tokens=train_tokens,
        share=share,
        layout=layout,
        overrides=overrides,
    )
    throughput = estimate_throughput(
        model, sequence_length=sequence_length, precision=recipe.precision
    )
    return Plan(
        tier=tier,
        model=model,
        recipe=recipe,
        layout=layout,
        memory=memory,
        throughput=throughput,
        cost=estimate_cost(
            train_tokens=train_tokens,
            tokens_per_second=throughput.tokens_per_second_per_gpu * gpus,
            instance_count=instance_count,
            hourly_price_usd=hourly_price_usd,
        ),
        warnings=_warnings(model, sequence_length, global_batch_tokens, train_tokens),
    )


def _check_whole(name: str, value: object, maximum: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= maximum:
        raise PlanError(f"{name} is {value!r}; a whole number from 1 to {maximum:,} is needed")


def _sequences_per_gpu(global_batch_tokens: int, sequence_length: int, gpus: int) -> int:
    unit = sequence_length * gpus
    if global_batch_tokens % unit:
        below, above = global_batch_tokens // unit * unit, (global_batch_tokens // unit + 1) * unit
        nearest = f"{below:,} or {above:,}" if below else f"{above:,}"
        raise PlanError(
            f"global_batch_tokens is {global_batch_tokens:,}; it must be a multiple of "
            f"sequence_length {sequence_length:,} x {gpus} GPUs = {unit:,}: use {nearest}"
        )
    return global_batch_tokens // unit


def _fit(
    model: ModelShape,
    *,
    sequence_length: int,
    global_batch_tokens: int,
    train_tokens: int,
    share: int,
    layout: Layout,
    overrides: RecipeOverrides,
) -> tuple[Recipe, MemoryEstimate]:
    """The least checkpointing that fits one sequence, then the largest micro-batch."""
    train_steps = -(-train_tokens // global_batch_tokens)
    optimizer = overrides.optimizer or default_optimizer(model, train_steps=train_steps)
    rungs, sizes = _checkpointing_choices(overrides), _micro_batch_choices(overrides, share)
    compiled = True if overrides.compile is None else overrides.compile
    smallest: MemoryEstimate | None = None
    for rung in rungs:
        for size in sizes:
            tokens = size * sequence_length
            chunks = (
                default_loss_chunks(model, tokens=tokens)
                if overrides.loss_chunks is None
                else overrides.loss_chunks
            )
            recipe = Recipe(
                precision=overrides.precision or "bf16",
                sequence_length=sequence_length,
                global_batch_tokens=global_batch_tokens,
                micro_batch_size=size,
                activation_checkpointing=rung,
                loss_chunks=chunks,
                compile=compiled,
                seed=0 if overrides.seed is None else overrides.seed,
                optimizer=optimizer,
            )
            memory = estimate_memory(
                model,
                tokens=tokens,
                sequence_length=sequence_length,
                shard_gpus=layout.shard_gpus,
                activation_checkpointing=rung,
                loss_chunks=chunks,
                precision=recipe.precision,
                compiled=compiled,
                accumulates=size < share,
            )
            if memory.fits:
                return recipe, memory
            if smallest is None or memory.reserved_gib < smallest.reserved_gib:
                smallest = memory
    assert smallest is not None
    raise PlanError(
        f"{model.name} at {sequence_length:,} tokens needs {smallest.reserved_gib:.1f} GiB per GPU "
        f"of {smallest.budget_gib:.1f} GiB with activation_checkpointing {rungs[-1]} and "
        f"micro_batch_size {sizes[-1]}: "
        + (
            "leave micro_batch_size and activation_checkpointing to the recipe"
            if overrides.micro_batch_size or overrides.activation_checkpointing
            else "use a shorter sequence_length"
        )
    )


def _checkpointing_choices(overrides: RecipeOverrides) -> tuple[str, ...]:
    wanted = overrides.activation_checkpointing
    if wanted is None:
        return CHECKPOINTING_LADDER
    try:
        checkpointing_interval(wanted)
    except ValueError as error:
        raise PlanError(str(error)) from error
    return (wanted,)


def _micro_batch_choices(overrides: RecipeOverrides, share: int) -> tuple[int, ...]:
    """Divisors of each GPU's share of the global batch, largest first."""
    divisors = _divisors(share)
    wanted = overrides.micro_batch_size
    if wanted is None:
        return divisors
    if isinstance(wanted, bool) or wanted not in divisors:
        raise PlanError(
            f"micro_batch_size is {wanted!r}; each GPU has {share} sequences per step, so allowed "
            f"are {', '.join(map(str, sorted(divisors)[:12]))}"
        )
    return (wanted,)


def _divisors(number: int) -> tuple[int, ...]:
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}, reverse=True))


def _warnings(
    model: ModelShape, sequence_length: int, global_batch_tokens: int, train_tokens: int
) -> tuple[str, ...]:
    found = []
    if sequence_length > model.max_position_embeddings:
        found.append(
            f"sequence_length {sequence_length:,} is beyond the {model.max_position_embeddings:,} "
            f"positions that {model.name} was made for; its RoPE is used as it is"
        )
    if train_tokens < global_batch_tokens:
        found.append(
            f"train_tokens {train_tokens:,} is less than one global batch of "
            f"{global_batch_tokens:,}: the run is one step"
        )
    return tuple(found)

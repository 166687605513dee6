"""From a wish (model, sequence length, batch, tokens) to a checked plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.cost import CostEstimate, estimate_cost
from cdk_blackwell.planning.errors import DoesNotFitError, PlanError
from cdk_blackwell.planning.fit import Wish, fit
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.memory import MemoryEstimate
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import (
    MAXIMUM_SEQUENCE_LENGTH,
    NO_OVERRIDES,
    SMALL_TIER_PARAMETERS,
    RecipeOverrides,
)
from cdk_blackwell.planning.run_spec import Layout, Recipe, plain
from cdk_blackwell.planning.throughput import ThroughputEstimate, estimate_throughput

MAXIMUM_TOKENS: Final = 10**15
"""Above any run of this size class; catches slips in the number of zeros."""
MAXIMUM_BATCH_TOKENS: Final = 10**10
"""Above any useful global batch (Llama 3 ended at 16 million)."""
MAXIMUM_HOURLY_PRICE_USD: Final = 10_000
"""Far above any instance's price; catches slips such as cents or a price per day."""


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
            "recipe": plain(asdict(self.recipe)),
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
    if not isinstance(model, ModelShape):
        raise PlanError(
            f"model is {model!r}; give ModelShape.preset(name), "
            "ModelShape.from_hugging_face_config(path) or explicit fields"
        )
    if tier != "small":
        raise PlanError(f"tier {tier!r} cannot be planned yet: this version has 'small' only")
    if model.parameter_count > SMALL_TIER_PARAMETERS:
        raise DoesNotFitError(
            f"{model.name} has {model.parameter_count / 1e9:.2f}B parameters; SmallModelJob takes "
            f"up to {SMALL_TIER_PARAMETERS / 1e9:.0f}B: use MidModelJob (7B-30B)"
        )
    if instance_count != 1:
        raise DoesNotFitError(
            f"instance_count is {instance_count!r}; SmallModelJob runs on 1 instance, which is "
            "enough up to 7B parameters: leave instance_count out"
        )
    _check_whole("sequence_length", sequence_length, MAXIMUM_SEQUENCE_LENGTH)
    _check_whole("global_batch_tokens", global_batch_tokens, MAXIMUM_BATCH_TOKENS)
    _check_whole("train_tokens", train_tokens, MAXIMUM_TOKENS)
    _check_price(hourly_price_usd)

    gpus = instance_count * P6_B200.gpus
    _check_global_batch(global_batch_tokens, sequence_length, gpus)
    layout = Layout(
        shard_gpus=P6_B200.gpus,
        replicas=instance_count,
        context_parallel=1,
        tensor_parallel=1,
    )
    recipe, memory = fit(
        Wish(
            model=model,
            sequence_length=sequence_length,
            global_batch_tokens=global_batch_tokens,
            train_tokens=train_tokens,
            layout=layout,
            overrides=overrides,
        )
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


def _check_price(price: float | None) -> None:
    if price is None:
        return
    number = isinstance(price, (int, float)) and not isinstance(price, bool)
    if not number or not 0 < price <= MAXIMUM_HOURLY_PRICE_USD:
        raise PlanError(
            f"hourly_price_usd is {price!r}; give US dollars per instance and hour, above 0 and up "
            f"to {MAXIMUM_HOURLY_PRICE_USD:,}, or leave it out"
        )


def _check_global_batch(global_batch_tokens: int, sequence_length: int, gpus: int) -> None:
    unit = sequence_length * gpus
    if global_batch_tokens % unit:
        below, above = global_batch_tokens // unit * unit, (global_batch_tokens // unit + 1) * unit
        nearest = f"{below:,} or {above:,}" if below else f"{above:,}"
        raise PlanError(
            f"global_batch_tokens is {global_batch_tokens:,}; it must be a multiple of "
            f"sequence_length {sequence_length:,} x {gpus} GPUs = {unit:,}: use {nearest}"
        )


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

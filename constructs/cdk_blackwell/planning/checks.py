"""Refuses what no plan can have: one PlanError that names the value, the limit and the way out."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, Final, get_args

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from cdk_blackwell.planning.divisibility import (
    TENSOR_PARALLEL_DIVIDES,
    divisors,
    sequence_divides,
    ulysses_divides,
    ulysses_suffices,
)
from cdk_blackwell.planning.errors import PlanError, UnusableValueError
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import (
    MAXIMUM_SEQUENCE_LENGTH,
    LayoutOverrides,
    RecipeOverrides,
)
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.run_spec import (
    EIGHT_BIT,
    GradientSync,
    Optimizer,
    OptimizerImplementation,
    Precision,
)
from cdk_blackwell.planning.tiers import MAXIMUM_INSTANCES, TIERS, TierRecipe, tier_for
from cdk_blackwell.planning.trial import TrialReport

MAXIMUM_TOKENS: Final = 10**15
"""Above any run of this size class; catches slips in the number of zeros."""
MAXIMUM_BATCH_TOKENS: Final = 10**10
"""Above any useful global batch (Llama 3 ended at 16 million)."""
MAXIMUM_HOURLY_PRICE_USD: Final = 10_000
"""Far above any instance's price; catches slips such as cents or a price per day."""
MAXIMUM_COST_USD: Final = 10**9
MAXIMUM_GPUS: Final = MAXIMUM_INSTANCES * P6_B200.gpus


def check_request(request: Request) -> None:
    """Refuse values that are wrong by themselves or contradict the model or each other."""
    model = request.model
    if not isinstance(model, ModelShape):
        raise PlanError(
            f"model is {_short(model)}; give ModelShape.preset(name), "
            "ModelShape.from_hugging_face_config(path) or explicit fields"
        )
    check_whole("sequence_length", request.sequence_length, most=MAXIMUM_SEQUENCE_LENGTH)
    if request.tier is not None:
        _check_choice("tier", request.tier, tuple(TIERS))
    for name, most in (
        ("global_batch_tokens", MAXIMUM_BATCH_TOKENS),
        ("train_tokens", MAXIMUM_TOKENS),
        ("instance_count", MAXIMUM_INSTANCES),
        ("gpus", MAXIMUM_GPUS),
    ):
        if getattr(request, name) is not None:
            check_whole(name, getattr(request, name), most=most)
    _check_gpus(request)
    _check_kind("overrides", request.overrides, RecipeOverrides)
    _check_kind("layout", request.layout, LayoutOverrides)
    if request.measured is not None:
        _check_kind("measured", request.measured, TrialReport)
    _check_recipe(request.overrides, sequence_length=request.sequence_length)
    _check_money(request)
    tier = TIERS[request.tier] if request.tier else tier_for(model.parameter_count)
    _check_edge_blocks(request, tier=tier)
    most = request.instance_count or tier.maximum_instances
    _check_layout(request, tier=tier, gpus=request.gpus or most * P6_B200.gpus)


def check_whole(name: str, value: object, *, least: int = 1, most: int) -> None:
    """PlanError unless ``value`` is a whole number in range (a bool is none)."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PlanError(
            f"{name} is {_short(value)}; a whole number from {least} to {most:,} is needed"
        )


def _check_gpus(request: Request) -> None:
    gpus, count, node = request.gpus, request.instance_count, P6_B200.gpus
    if gpus is None:
        return
    if gpus not in (1, 2, 4) and gpus % node:
        below, above = gpus // node * node, min(MAXIMUM_GPUS, (gpus // node + 1) * node)
        raise PlanError(
            f"gpus is {gpus}; give 1, 2 or 4 (part of an instance) or a multiple of {node}: "
            f"use {below or 4} or {above}"
        )
    if count is not None and gpus != count * node:
        raise PlanError(
            f"gpus is {gpus} and instance_count is {count}, which has {count * node} GPUs: "
            "give only one of the two"
        )


def _check_recipe(overrides: RecipeOverrides, *, sequence_length: int) -> None:
    if overrides.activation_checkpointing is not None:
        try:
            checkpointing_interval(overrides.activation_checkpointing)
        except (TypeError, ValueError) as error:
            raise PlanError(str(error)) from error
    for name, choices in (
        ("precision", get_args(Precision)),
        ("optimizer_implementation", get_args(OptimizerImplementation)),
    ):
        if getattr(overrides, name) is not None:
            _check_choice(name, getattr(overrides, name), choices)
    if overrides.compile is not None:
        _check_flag("compile", overrides.compile)
    if overrides.optimizer is not None and not isinstance(overrides.optimizer, Optimizer):
        raise PlanError(f"optimizer is {_short(overrides.optimizer)}; give an Optimizer")
    for name, least, most in (
        ("micro_batch_size", 1, MAXIMUM_BATCH_TOKENS),
        ("loss_chunks", 1, sequence_length),  # a piece holds a token at least
        ("seed", 0, 2**63 - 1),
    ):
        if getattr(overrides, name) is not None:
            check_whole(name, getattr(overrides, name), least=least, most=most)


def _check_edge_blocks(request: Request, *, tier: TierRecipe) -> None:
    edge = request.overrides.bf16_edge_blocks
    if edge is None:
        return
    model = request.model
    check_whole("bf16_edge_blocks", edge, least=0, most=(model.num_hidden_layers - 1) // 2)
    precision = request.overrides.precision or tier.precision
    if edge and precision not in EIGHT_BIT:
        raise PlanError(
            f"bf16_edge_blocks is {edge}, but precision is {precision}, in which every block is of "
            "that precision: leave it out, or use precision fp8, fp8_rowwise or mxfp8"
        )


def _check_money(request: Request) -> None:
    for name, most, meaning in (
        ("hourly_price_usd", MAXIMUM_HOURLY_PRICE_USD, "US dollars per instance and hour"),
        ("max_cost_usd", MAXIMUM_COST_USD, "US dollars for the whole run"),
    ):
        value = getattr(request, name)
        if value is None:
            continue
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not number or not 0 < value <= most:
            raise PlanError(
                f"{name} is {_short(value)}; give {meaning}, above 0 and up to {most:,}, "
                "or leave it out"
            )
    if request.max_cost_usd is not None and request.hourly_price_usd is None:
        raise PlanError(
            f"max_cost_usd is {request.max_cost_usd:,} but hourly_price_usd is not given: "
            "give the price of one instance per hour, or leave max_cost_usd out"
        )


def _check_layout(request: Request, *, tier: TierRecipe, gpus: int) -> None:
    layout = request.layout
    for name in ("shard_gpus", "replicas", "context_parallel", "ulysses", "tensor_parallel"):
        if getattr(layout, name) is not None:
            check_whole(name, getattr(layout, name), most=MAXIMUM_GPUS)
    if layout.reshard_after_forward is not None:
        _check_flag("reshard_after_forward", layout.reshard_after_forward)
    if layout.gradient_sync is not None:
        _check_choice("gradient_sync", layout.gradient_sync, get_args(GradientSync))
    _check_tensor_parallel(request, tier=tier, gpus=gpus)
    _check_product(request, gpus=gpus)
    _check_context_parallel(request, tier=tier, gpus=gpus)
    _check_ulysses(request)


def _check_tensor_parallel(request: Request, *, tier: TierRecipe, gpus: int) -> None:
    model, ranks = request.model, request.layout.tensor_parallel
    if ranks is None or ranks == 1:
        return
    most = min(P6_B200.gpus, gpus)
    possible = _values("tensor_parallel", divisors(most))
    if ranks > most or most % ranks:
        raise UnusableValueError(
            f"tensor_parallel is {ranks}; it must divide the {most} GPUs that one instance gives",
            changes=possible,
        )
    if model.qk_norm == "full":
        raise UnusableValueError(
            f"tensor_parallel is {ranks}; {model.name} normalises all of a token's heads together "
            "(qk_norm full), which ranks that hold some of the heads cannot do",
            changes=possible,
        )
    for what in TENSOR_PARALLEL_DIVIDES:
        size = getattr(model, what)
        if size % ranks:
            raise UnusableValueError(
                f"tensor_parallel is {ranks}, which does not divide {what} {size:,} of "
                f"{model.name}",
                changes=possible,
            )
    precision = request.overrides.precision or tier.precision
    if precision in EIGHT_BIT:
        whose = "" if request.overrides.precision else f", the {tier.tier} tier's,"
        raise UnusableValueError(
            f"tensor_parallel is {ranks}; it splits matrices, which precision {precision}{whose} "
            "scales as a whole",
            changes=({"tensor_parallel": 1}, {"precision": "bf16"}),
        )


def _check_product(request: Request, *, gpus: int) -> None:
    """``gpus`` are those of the plan, or the most there can be when their number is open."""
    given = _given(request.layout, ("shard_gpus", "replicas", "tensor_parallel"))
    product = prod(given.values())
    words = " x ".join(f"{name} {value}" for name, value in given.items())
    changes = tuple(change for name in given for change in _values(name, divisors(gpus)))
    if gpus % product:
        raise UnusableValueError(
            f"{words} is {product:,} GPUs, which does not divide the {gpus} GPUs that there are",
            changes=changes,
        )
    open_count = request.gpus is None and request.instance_count is None
    if len(given) == 3 and product != gpus and not open_count:
        raise UnusableValueError(
            f"{words} is {product:,} GPUs, but the plan has {gpus}", changes=changes
        )


def _check_context_parallel(request: Request, *, tier: TierRecipe, gpus: int) -> None:
    layout, ranks = request.layout, request.layout.context_parallel
    if ranks is None:
        return
    shards = layout.shard_gpus or gpus // (layout.tensor_parallel or 1)
    if shards % ranks:
        of = "shard_gpus" if layout.shard_gpus else "the GPUs that can shard,"
        raise UnusableValueError(
            f"context_parallel is {ranks}; it must divide {of} {shards}",
            changes=_values("context_parallel", divisors(shards)),
        )
    length = request.sequence_length
    tensor = layout.tensor_parallel or 1
    whole = ranks if ulysses_divides(request.model, ranks, tensor_parallel=tensor) else 1
    ulysses = layout.ulysses or whole
    precision = request.overrides.precision or tier.precision
    if not ulysses_suffices(ranks, ulysses, precision):
        given = f"context_parallel is {ranks}"
        if layout.ulysses:
            given += f" and ulysses is {layout.ulysses}"
        raise UnusableValueError(
            f"{given}; in fp32 all ranks that share a sequence must exchange heads (ulysses), "
            "since attention to gathered keys has no such kernel",
            changes=(
                *_values("ulysses", (ranks,)),
                *_values("context_parallel", divisors(shards)),
                {"precision": "bf16"},
            ),
        )
    if not sequence_divides(length, ranks, ulysses):
        pieces = ranks if ulysses == ranks else 2 * ranks
        step = pieces if pieces <= MAXIMUM_SEQUENCE_LENGTH else MAXIMUM_SEQUENCE_LENGTH
        near = (length // step * step, (length // step + 1) * step)
        raise UnusableValueError(
            f"sequence_length is {length:,}, which does not split into the {pieces} equal pieces "
            f"that context_parallel {ranks} needs",
            changes=_values(
                "sequence_length", [n for n in near if 1 <= n <= MAXIMUM_SEQUENCE_LENGTH]
            ),
        )


def _check_ulysses(request: Request) -> None:
    layout, ranks, model = request.layout, request.layout.ulysses, request.model
    if ranks is None:
        return
    tensor = layout.tensor_parallel or 1
    if layout.context_parallel and layout.context_parallel % ranks:
        raise UnusableValueError(
            f"ulysses is {ranks}; it must divide context_parallel {layout.context_parallel}",
            changes=_values("ulysses", divisors(layout.context_parallel)),
        )
    if not ulysses_divides(model, ranks, tensor_parallel=tensor):
        raise UnusableValueError(
            f"ulysses is {ranks}; it must divide the {model.num_key_value_heads} key-value heads "
            f"of {model.name}{f' over tensor_parallel {tensor}' if tensor > 1 else ''} and stay "
            f"within the {P6_B200.gpus} GPUs of an instance",
            changes=_values("ulysses", divisors(P6_B200.gpus)),
        )


def _values(name: str, values: Iterable[int]) -> tuple[dict[str, Any], ...]:
    return tuple({name: value} for value in values)


def _given(owner: object, names: tuple[str, ...]) -> dict[str, int]:
    return {name: value for name in names if (value := getattr(owner, name)) is not None}


def _check_choice(name: str, value: object, choices: tuple[object, ...]) -> None:
    if not isinstance(value, str) or value not in choices:
        raise PlanError(f"{name} is {_short(value)}; allowed are {', '.join(map(str, choices))}")


def _check_flag(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise PlanError(f"{name} is {_short(value)}; give True or False")


def _check_kind(name: str, value: object, kind: type) -> None:
    if not isinstance(value, kind):
        raise PlanError(f"{name} is {_short(value)}; give a {kind.__name__}")


def _short(value: object) -> str:
    """The value as given, cut where nobody reads on."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."

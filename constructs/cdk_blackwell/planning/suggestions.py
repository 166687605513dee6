"""The nearest changes that turn a refused request into a plan, each tried before it is named.

A change is tried by planning with it: what is proposed has passed every rule, not only the one that
refused. Single settings come first, then several together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from cdk_blackwell.planning.assumptions import plural
from cdk_blackwell.planning.divisibility import divisors
from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.refusals import Refusal, Rule, refusal
from cdk_blackwell.planning.request import Change, Request
from cdk_blackwell.planning.tiers import INSTANCE_COUNTS, TIERS, tier_for

if TYPE_CHECKING:
    from cdk_blackwell.planning.plan import Plan

MOST_CHANGES: Final = 3
"""Changes named in one error."""
SHORTEST_SUGGESTED_SEQUENCE: Final = 512
"""Tokens; a shorter sequence is not worth proposing."""

Draft = Callable[[Request], "Plan"]
Settings = dict[str, Any]

_RECIPE_MEMORY: Final = ("micro_batch_size", "activation_checkpointing", "loss_chunks")
_RECIPE_REST: Final = ("optimizer_implementation", "compile", "precision")
_LAYOUT: Final = (
    "context_parallel",
    "ulysses",
    "reshard_after_forward",
    "gradient_sync",
    "shard_gpus",
    "replicas",
    "tensor_parallel",
)


def way_out(request: Request, plan: Plan, reason: Refusal, *, draft: Draft) -> tuple[Change, ...]:
    """Changes that pass, nearest first; ``draft`` plans a request without applying rules."""
    tried = _Tried(request=request, rule=reason.rule, draft=draft)
    match reason.rule:
        case "model":
            return tried.first(_other_tiers(request, plan))
        case "instances":
            return tried.first(_other_counts(request, plan))
        case "cost":
            return tried.each(_cheaper(request, plan))
        case "memory":
            single = tried.each(_single_settings(request, plan))
            return single or tried.first(_several_settings(request, plan))


class _Tried:
    """Tries settings by planning with them."""

    def __init__(self, *, request: Request, rule: Rule, draft: Draft) -> None:
        self._request, self._rule, self._draft = request, rule, draft

    def each(self, choices: Iterable[Iterable[Settings]]) -> tuple[Change, ...]:
        """Of each row of choices the first that passes."""
        found: list[Change] = []
        for row in choices:
            found.extend(self.first([row]))
            if len(found) == MOST_CHANGES:
                break
        return tuple(found)

    def first(self, choices: Iterable[Iterable[Settings]]) -> tuple[Change, ...]:
        """The first of all choices that passes."""
        for row in choices:
            for settings in row:
                change = self.change(settings)
                if change is not None:
                    return (change,)
        return ()

    def change(self, settings: Settings) -> Change | None:
        """The change, its open settings filled with what the plan chose; None when it is refused.

        With the values filled in it is tried once more, as a reader would use it.
        """
        plan = self._passing(settings)
        if plan is None:
            return None
        if None in settings.values():
            settings = {
                name: _chosen(plan, name) if value is None else value
                for name, value in settings.items()
            }
            settings = {
                name: value
                for name, value in settings.items()
                if value != self._request.value(name)
            }
            plan = self._passing(settings)
            if plan is None:
                return None
        return Change(
            settings=settings,
            required_gib=plan.memory.required_gib,
            total_usd=plan.cost.total_usd,
            words=_words(settings, plan, self._rule),
        )

    def _passing(self, settings: Settings) -> Plan | None:
        request = self._request.changed(settings)
        try:
            plan = self._draft(request)
        except PlanError:
            return None  # the change contradicts another setting
        return plan if refusal(request, plan) is None else None


def _chosen(plan: Plan, name: str) -> Any:
    if name == "optimizer_implementation":
        return plan.recipe.optimizer.implementation
    owner = plan.recipe if hasattr(plan.recipe, name) else plan.layout
    return getattr(owner, name)


def _words(settings: Settings, plan: Plan, rule: Rule) -> str:
    parts = []
    for name, value in settings.items():
        if name == "instance_count":
            parts.append(plural(value, "node"))
        elif name == "tier":
            tier = TIERS[value]
            parts.append(f"{tier.construct} ({tier.sizes})")
        else:
            number = isinstance(value, int) and not isinstance(value, bool)
            parts.append(f"{name} {value:,}" if number else f"{name} {value}")
    after = f"{plan.memory.required_gib:.1f} GiB"
    if rule == "cost" and plan.cost.total_usd is not None:
        after = f"{plan.cost.total_usd:,.0f} USD"
    return f"{' with '.join(parts)} ({after})"


def _single_settings(request: Request, plan: Plan) -> Iterator[Iterable[Settings]]:
    """For each fixed setting its other values, nearest first; then more GPUs, shorter sequences."""
    for name in (
        *_RECIPE_MEMORY[:2],
        "context_parallel",
        "loss_chunks",
        *_LAYOUT[1:],
        *_RECIPE_REST,
    ):
        if request.value(name) is not None:
            yield ({name: value} for value in _less_memory(name, request.value(name), plan))
    yield _more_gpus(request, plan)
    yield _shorter_sequences(request)


def _less_memory(name: str, value: Any, plan: Plan) -> Iterator[Any]:
    """Values of a setting that may need less memory, nearest first."""
    match name:
        case "micro_batch_size":
            yield from (size for size in reversed(divisors(value)) if size < value)
        case "activation_checkpointing":
            yield from _more_checkpointing(value)
        case "loss_chunks":
            yield from (value << shift for shift in range(1, 9))
        case "context_parallel" | "ulysses":
            yield from (ranks for ranks in divisors(plan.gpus) if ranks > value)
            yield from (ranks for ranks in reversed(divisors(plan.gpus)) if ranks < value)
        case "shard_gpus" | "tensor_parallel":
            yield from (ranks for ranks in divisors(plan.gpus) if ranks > value)
        case "replicas":
            yield from (copies for copies in reversed(divisors(value)) if copies < value)
        case "reshard_after_forward":
            yield from (other for other in (True,) if value is not other)
        case "gradient_sync":
            yield from (other for other in ("micro_batch",) if value != other)
        case "optimizer_implementation":
            yield from (other for other in ("fused",) if value != other)
        case "compile":
            yield from (other for other in (True,) if value is not other)
        case "precision":
            yield from (other for other in ("bf16", "fp8") if value != other)


def _more_checkpointing(value: str) -> Iterator[str]:
    interval = checkpointing_interval(value)
    if value == "none":
        yield "selective"
    if interval is None:
        yield from ("every:2", "full")
    else:
        yield from (f"every:{fewer}" for fewer in range(interval - 1, 1, -1))
        if interval > 1:
            yield "full"


def _more_gpus(request: Request, plan: Plan) -> Iterator[Settings]:
    if request.gpus is not None:
        name, now, counts = "gpus", request.gpus, (2, 4, *(8 * n for n in INSTANCE_COUNTS))
    else:
        name, now, counts = "instance_count", plan.instance_count, INSTANCE_COUNTS
        counts = tuple(count for count in counts if plan.wish.tier.allows_instances(count))
    for count in counts:
        if count > now:
            yield from _count_settings(request, name, count)


def _count_settings(request: Request, name: str, count: int) -> Iterator[Settings]:
    """A number of GPUs, if need be with a layout or a batch that it divides."""
    yield {name: count}
    layout = {
        setting: None
        for setting in ("shard_gpus", "replicas")
        if request.value(setting) is not None
    }
    batch = {"global_batch_tokens": None} if request.global_batch_tokens is not None else {}
    if layout:
        yield {name: count, **layout}
    if batch:
        yield {name: count, **batch}
    if layout and batch:
        yield {name: count, **layout, **batch}


def _shorter_sequences(request: Request) -> Iterator[Settings]:
    length = request.sequence_length
    while length % 2 == 0 and length // 2 >= SHORTEST_SUGGESTED_SEQUENCE:
        length //= 2
        yield {"sequence_length": length}


def _several_settings(request: Request, plan: Plan) -> Iterator[Iterable[Settings]]:
    """All fixed settings of a kind left open, alone, then with more GPUs or shorter sequences."""

    def freed(names: Iterable[str]) -> Settings:
        return {name: None for name in names if request.value(name) is not None}

    memory, layout = freed(_RECIPE_MEMORY), freed(_LAYOUT)
    everything = {**memory, **layout, **freed(_RECIPE_REST)}
    for settings in (memory, layout, everything):
        if settings:
            yield [settings]
    for more in (_more_gpus(request, plan), _shorter_sequences(request)):
        yield ({**everything, **settings} for settings in more)


def _other_tiers(request: Request, plan: Plan) -> Iterator[Iterable[Settings]]:
    right = tier_for(plan.model.parameter_count)
    if not right.takes(plan.model.parameter_count):
        return
    tier = {"tier": right.tier}
    counts = [count for count in INSTANCE_COUNTS if right.allows_instances(count)]
    name, unit = ("gpus", P6_B200.gpus) if request.gpus is not None else ("instance_count", 1)
    yield [tier]
    for count in counts:
        yield ({**tier, **more} for more in _count_settings(request, name, count * unit))
    fixed = (*_RECIPE_MEMORY, *_LAYOUT)
    everything = {name: None for name in fixed if request.value(name) is not None}
    for count in counts:
        for more in _count_settings(request, name, count * unit):
            yield [{**tier, **everything, **more}]


def _other_counts(request: Request, plan: Plan) -> Iterator[Iterable[Settings]]:
    """Allowed numbers of instances, nearest first, then with the memory settings left open."""
    tier, now = plan.wish.tier, plan.gpus / P6_B200.gpus
    counts = sorted(
        (count for count in INSTANCE_COUNTS if tier.allows_instances(count)),
        key=lambda count: abs(count - now),
    )
    name, unit = ("gpus", P6_B200.gpus) if request.gpus is not None else ("instance_count", 1)
    open_settings = {
        setting: None
        for setting in (*_RECIPE_MEMORY, *_LAYOUT)
        if request.value(setting) is not None
    }
    for count in counts:
        yield _count_settings(request, name, count * unit)
    for count in counts:
        for more in _count_settings(request, name, count * unit):
            yield [{**open_settings, **more}]


def _cheaper(request: Request, plan: Plan) -> Iterator[Iterable[Settings]]:
    """Fewer tokens at the same price per token, or a higher ceiling."""
    ceiling, usd, batch = request.max_cost_usd, plan.cost.total_usd, plan.recipe.global_batch_tokens
    assert ceiling is not None
    assert usd is not None
    # The optimizer's warm-up follows the number of steps; the price of a token does not.
    steps = math.floor(plan.train_tokens * ceiling / usd / batch)
    yield ({"train_tokens": fewer * batch} for fewer in (steps, steps - 1) if fewer > 0)
    yield [{"max_cost_usd": math.ceil(usd)}]

"""Which rule refuses a plan: the tier's models, its instances, memory or the cost ceiling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cdk_blackwell.planning.assumptions import instances_of, plural
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.request import Change, Request
from cdk_blackwell.planning.tiers import LARGE_SHARDED, tier_for

if TYPE_CHECKING:
    from cdk_blackwell.planning.plan import Plan

Rule = Literal["model", "instances", "memory", "cost"]


@dataclass(frozen=True, kw_only=True)
class Refusal:
    """The rule and what it says."""

    rule: Rule
    text: str
    """The value and the limit."""
    without_changes: str
    """What to do when no change was found that passes."""

    def message(self, changes: Sequence[Change]) -> str:
        """One line: the value, the limit, and the ways out."""
        if changes:
            return f"{self.text}: use {' or '.join(change.words for change in changes)}"
        return f"{self.text}: {self.without_changes}"


def refusal(request: Request, plan: Plan) -> Refusal | None:
    """The first rule that refuses; None when all agree."""
    return (
        _model(plan) or _instances(request, plan) or _memory(request, plan) or _cost(request, plan)
    )


def _model(plan: Plan) -> Refusal | None:
    model, tier = plan.model, plan.wish.tier
    parameters = model.parameter_count
    if tier.takes(parameters):
        return None
    size = f"{model.name} has {parameters / 1e9:.2f}B parameters"
    if parameters > LARGE_SHARDED.up_to_parameters:
        return Refusal(
            rule="model",
            text=f"{size}; {LARGE_SHARDED.construct} takes up to "
            f"{LARGE_SHARDED.up_to_parameters / 1e9:.0f}B",
            without_changes="recipes end at the 64B class, for which they were made; larger models "
            "want pipeline parallelism, which this trainer does not have",
        )
    right = tier_for(parameters)
    return Refusal(
        rule="model",
        text=f"{size}; {tier.construct} takes {tier.sizes}",
        without_changes=f"use {right.construct} ({right.sizes})",
    )


def _instances(request: Request, plan: Plan) -> Refusal | None:
    tier = plan.wish.tier
    count = plan.gpus / P6_B200.gpus
    if request.tier is None and request.gpus is not None:
        return None  # a study of GPUs, not of a job: a warning says so
    if tier.minimum_instances <= count <= tier.maximum_instances:
        return None
    given = (
        f"gpus is {request.gpus}" if request.gpus else f"instance_count is {plan.instance_count}"
    )
    why = (
        "which is enough for its models"
        if count > tier.maximum_instances
        else "because models of its size need sharding across instances to train well"
    )
    return Refusal(
        rule="instances",
        text=f"{given}; {tier.construct} runs on "
        f"{instances_of(tier.minimum_instances, tier.maximum_instances)}, {why}",
        without_changes="leave instance_count out",
    )


def _memory(request: Request, plan: Plan) -> Refusal | None:
    memory, recipe, layout = plan.memory, plan.recipe, plan.layout
    if memory.fits:
        return None
    on = (
        plural(plan.instance_count, "node")
        if plan.gpus % P6_B200.gpus == 0
        else plural(plan.gpus, "GPU")
    )
    given = getattr(memory, "margin_gib", 0.0)
    margin = f" and a margin of {given:.1f} GiB" if given else ""
    return Refusal(
        rule="memory",
        text=f"{plan.model.name} at {recipe.sequence_length:,} tokens on {on} needs "
        f"{memory.reserved_gib:.1f} GiB{margin} of {memory.budget_gib:.1f} GiB per GPU with "
        f"micro_batch_size {recipe.micro_batch_size}, activation_checkpointing "
        f"{recipe.activation_checkpointing}, loss_chunks {recipe.loss_chunks}, shard_gpus "
        f"{layout.shard_gpus}, context_parallel {layout.context_parallel}, tensor_parallel "
        f"{layout.tensor_parallel}",
        without_changes="no change of one or several settings fits; use a smaller model",
    )


def _cost(request: Request, plan: Plan) -> Refusal | None:
    ceiling, usd = request.max_cost_usd, plan.cost.total_usd
    if ceiling is None or usd is None or usd <= ceiling:
        return None
    return Refusal(
        rule="cost",
        text=f"{plan.train_tokens:,} tokens are predicted to cost {usd:,.2f} USD "
        f"({plan.cost.total_hours:,.1f} hours on {plural(plan.instance_count, 'instance')} at "
        f"{request.hourly_price_usd:,} USD an hour) of max_cost_usd {ceiling:,.2f}",
        without_changes="raise max_cost_usd",
    )

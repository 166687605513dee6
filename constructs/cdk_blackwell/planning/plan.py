"""From a wish (model, sequence length, perhaps more) to a checked plan."""

from __future__ import annotations

import contextlib
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

from cdk_blackwell.planning.assumptions import list_assumptions, list_warnings
from cdk_blackwell.planning.checks import check_request
from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.cost import CostEstimate, estimate_cost
from cdk_blackwell.planning.decisions import Decision, explain
from cdk_blackwell.planning.efficiency import Efficiency
from cdk_blackwell.planning.errors import (
    DoesNotFitError,
    PlanError,
    UnusableValueError,
)
from cdk_blackwell.planning.following import follow_trial
from cdk_blackwell.planning.growth import start_safely
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.memory import MemoryEstimate
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.predictions import Candidate
from cdk_blackwell.planning.recipes import (
    ANY_LAYOUT,
    NO_OVERRIDES,
    LayoutOverrides,
    RecipeOverrides,
)
from cdk_blackwell.planning.refusals import refusal
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.run_spec import Layout, Recipe
from cdk_blackwell.planning.search import search_layouts
from cdk_blackwell.planning.strict_json import plain
from cdk_blackwell.planning.suggestions import way_out
from cdk_blackwell.planning.throughput import ThroughputEstimate
from cdk_blackwell.planning.tiers import INSTANCE_COUNTS, TIERS, tier_for
from cdk_blackwell.planning.trial import TrialReport
from cdk_blackwell.planning.ways import name_ways
from cdk_blackwell.planning.wish import Wish, make_wish


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Everything chosen and predicted for one job; ``to_dict`` is what ``plan --json`` prints."""

    wish: Wish = field(repr=False)
    """What the plan answers, with its defaults filled in."""
    candidate: Candidate = field(repr=False)
    """The layout and recipe chosen."""
    efficiency: Efficiency | None = field(repr=False)
    """Measured by a trial run; None for the published table's."""
    cost: CostEstimate
    assumptions: tuple[str, ...]
    """Defaults that stand for what was not given, with their sources."""
    warnings: tuple[str, ...]

    @property
    def tier(self) -> Tier:
        """Of the recipe that was used."""
        return self.wish.tier.tier

    @property
    def model(self) -> ModelShape:
        """To train."""
        return self.wish.model

    @property
    def train_tokens(self) -> int:
        """Given, or the default."""
        return self.wish.train_tokens

    @property
    def gpus(self) -> int:
        """In all."""
        return self.wish.gpus

    @property
    def instance_count(self) -> int:
        """Instances that hold the GPUs (part of one counts as one)."""
        return -(-self.gpus // P6_B200.gpus)

    @property
    def recipe(self) -> Recipe:
        """The five groups of decisions, as values."""
        return self.candidate.recipe

    @property
    def layout(self) -> Layout:
        """How ranks divide the work."""
        return self.candidate.layout

    @property
    def memory(self) -> MemoryEstimate:
        """At the micro-batch that the run begins with."""
        return self.candidate.memory

    @property
    def throughput(self) -> ThroughputEstimate:
        """At the micro-batch that the run begins with."""
        return self.candidate.throughput

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Why: the five groups in order, each with what else there was."""
        return explain(self.wish, self.candidate, self.efficiency)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {
            "model": {**asdict(self.model), "parameters": self.model.parameter_count},
            "tier": self.tier,
            "gpus": self.gpus,
            "instance_count": self.instance_count,
            "train_tokens": self.train_tokens,
            "recipe": plain(asdict(self.recipe)),
            "layout": asdict(self.layout),
            "micro_batch_size": self.recipe.micro_batch_size,
            "activation_checkpointing": self.recipe.activation_checkpointing,
            "precision": self.recipe.precision,
            "memory": {**plain(asdict(self.memory)), "fits": self.memory.fits},
            "throughput": plain(asdict(self.throughput)),
            "cost": plain(asdict(self.cost)),
            "assumptions": list(self.assumptions),
            "warnings": list(self.warnings),
            "decisions": [plain(asdict(decision)) for decision in self.decisions],
        }


def make_plan(
    *,
    model: ModelShape,
    sequence_length: int,
    tier: Tier | None = None,
    global_batch_tokens: int | None = None,
    train_tokens: int | None = None,
    instance_count: int | None = None,
    gpus: int | None = None,
    overrides: RecipeOverrides = NO_OVERRIDES,
    layout: LayoutOverrides = ANY_LAYOUT,
    hourly_price_usd: float | None = None,
    max_cost_usd: float | None = None,
    measured: TrialReport | None = None,
) -> Plan:
    """Choose what was left open, predict the rest, and refuse what cannot work.

    :param tier: recipe to follow, whose limits then hold. Default: by the model's parameters.
    :param global_batch_tokens: tokens per optimizer step. Default: about 4M; one micro-batch per
        data-parallel rank when ``overrides`` fixes the micro-batch.
    :param train_tokens: tokens to train on. Default: 20 per parameter.
    :param instance_count: instances of 8 GPUs. Default: the fewest, of the counts that a training
        plan can have and the tier allows, on which the plan fits.
    :param gpus: instead of ``instance_count``, for a study: 1, 2, 4 or a multiple of 8. The tier's
        limits on instances become warnings.
    :param overrides: recipe values to fix, one at a time.
    :param layout: layout values to fix, one at a time. Fixing ``shard_gpus`` and the micro-batch
        without a global batch describes one run: what else is left out is then plain FSDP2's (no
        context or tensor parallelism, weights resharded, gradients reduced per micro-batch).
    :param hourly_price_usd: of one instance. Default: unknown; no cost is shown.
    :param max_cost_usd: refuse a plan predicted to cost more. Default: no ceiling.
    :param measured: a trial run's report, whose efficiency replaces the published table's. What is
        left open is then its winner's, if that ran what is asked for; otherwise a warning says what
        differs.

    PlanError: a value that no plan can have. DoesNotFitError: memory, the tier or the cost ceiling
    refuses; its ``plan`` is the plan for exactly what was asked, its ``changes`` the ways out.
    """
    request = Request(
        model=model,
        sequence_length=sequence_length,
        tier=tier,
        global_batch_tokens=global_batch_tokens,
        train_tokens=train_tokens,
        instance_count=instance_count,
        gpus=gpus,
        overrides=overrides,
        layout=layout,
        hourly_price_usd=hourly_price_usd,
        max_cost_usd=max_cost_usd,
        measured=measured,
    )
    try:
        check_request(request)
        request = follow_trial(request).completed()
        plan = draft_plan(request)
    except UnusableValueError as error:
        raise name_ways(request, error, passes=_can_be_planned) from error
    reason = refusal(request, plan)
    if reason is None:
        return plan
    changes = way_out(request, plan, reason, draft=draft_plan)
    raise DoesNotFitError(reason.message(changes), plan=plan, changes=changes)


def draft_plan(request: Request) -> Plan:
    """The best plan for a request, or the nearest to fitting; PlanError for a value it cannot have.

    The tier's limits and the cost ceiling are not applied here.
    """
    check_request(request)
    efficiency = None if request.measured is None else Efficiency.measured(request.measured)
    broken: PlanError | None = None
    closest: tuple[Wish, Candidate] | None = None
    for gpus in _gpu_counts(request):
        try:
            wish = make_wish(request, gpus=gpus)
        except PlanError as error:
            # Another number of instances may divide what this one does not.
            broken = broken or error
            continue
        ranking = search_layouts(wish, efficiency)
        closest = wish, ranking.closest
        if ranking.fitting:
            break
    if closest is None:
        assert broken is not None
        raise broken
    wish, candidate = closest
    if candidate.memory.fits:
        candidate = start_safely(wish, candidate, efficiency)
    return _plan(request, wish, candidate, efficiency)


def _can_be_planned(request: Request) -> bool:
    """Whether a layout exists; the batch and memory are other questions."""
    request = request.completed().changed({"global_batch_tokens": None, "micro_batch_size": None})
    try:
        check_request(request)
    except PlanError:
        return False
    for gpus in _gpu_counts(request):
        with contextlib.suppress(PlanError):
            make_wish(request, gpus=gpus)
            return True
    return False


def _gpu_counts(request: Request) -> tuple[int, ...]:
    if request.gpus is not None:
        return (request.gpus,)
    if request.instance_count is not None:
        return (request.instance_count * P6_B200.gpus,)
    tier = TIERS[request.tier] if request.tier else tier_for(request.model.parameter_count)
    return tuple(n * P6_B200.gpus for n in INSTANCE_COUNTS if tier.allows_instances(n))


def _plan(
    request: Request, wish: Wish, candidate: Candidate, efficiency: Efficiency | None
) -> Plan:
    speed = candidate.throughput.tokens_per_second_per_gpu
    return Plan(
        wish=wish,
        candidate=candidate,
        efficiency=efficiency,
        cost=estimate_cost(
            model=wish.model,
            train_tokens=wish.train_tokens,
            tokens_per_second=speed * wish.gpus,
            instance_count=-(-wish.gpus // P6_B200.gpus),
            hourly_price_usd=request.hourly_price_usd,
        ),
        assumptions=list_assumptions(request, wish, candidate),
        warnings=list_warnings(request, wish, candidate),
    )

"""Why a plan is as it is: five groups of decisions, each with what else there was.

The groups and their order are the article's (see the README). For every group the value chosen,
the recommendation for the tier and whether it is followed, the reason in numbers, and the
alternatives' predictions with everything else as chosen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, get_args

from cdk_blackwell.planning.assumptions import FEW_INSTANCES, plural
from cdk_blackwell.planning.divisibility import (
    divisors,
    tensor_parallel_works,
    ulysses_suffices,
)
from cdk_blackwell.planning.efficiency import Efficiency
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.metrics import METRICS
from cdk_blackwell.planning.neighbours import describe_layout, neighbouring_layouts
from cdk_blackwell.planning.predictions import Candidate, predict
from cdk_blackwell.planning.recipes import default_loss_chunks
from cdk_blackwell.planning.run_spec import Layout, Precision, Recipe
from cdk_blackwell.planning.search import INDISTINGUISHABLE
from cdk_blackwell.planning.wish import Wish

CHECKPOINTING_SHOWN: Final = ("none", "every:4", "every:2", "selective", "full")
"""Alternatives in the explanation, from least recomputation on."""
WATCHED: Final = (
    "tokens_per_second",
    "mfu",
    "memory_reserved_gib",
    "data_wait_seconds",
    "step_seconds",
    "loss",
    "gradient_norm",
)
"""Keys of the metrics that the monitoring decision names first."""


@dataclass(frozen=True, kw_only=True)
class Alternative:
    """What else could have been chosen, everything else being equal."""

    value: str
    required_gib: float
    fits: bool
    tokens_per_second_per_gpu: float


@dataclass(frozen=True, kw_only=True)
class Decision:
    """One of the five groups."""

    group: str
    values: dict[str, Any]
    """What was chosen, by the recipe's and the layout's own names."""
    recommendation: str
    """The article's, for the tier."""
    follows: bool
    """Whether the values follow the recommendation."""
    reason: str
    """Why, in numbers; what to know where the recommendation is departed from."""
    alternatives: tuple[Alternative, ...]


def explain(
    wish: Wish, candidate: Candidate, efficiency: Efficiency | None = None
) -> tuple[Decision, ...]:
    """The five decisions behind a candidate, in order."""
    explained = _Explained(wish=wish, candidate=candidate, efficiency=efficiency)
    return (
        explained.batch(),
        explained.precision(),
        explained.activation_checkpointing(),
        explained.distribution(),
        explained.monitoring(),
    )


@dataclass(frozen=True, kw_only=True)
class _Explained:
    wish: Wish
    candidate: Candidate
    efficiency: Efficiency | None

    @property
    def recipe(self) -> Recipe:
        return self.candidate.recipe

    @property
    def layout(self) -> Layout:
        return self.candidate.layout

    def decision(
        self,
        group: str,
        *,
        values: dict[str, Any],
        follows: bool,
        reason: str,
        alternatives: Iterator[Alternative] | tuple[Alternative, ...],
    ) -> Decision:
        return Decision(
            group=group,
            values=values,
            recommendation=self.wish.tier.advice[group],
            follows=follows,
            reason=reason,
            alternatives=tuple(alternatives),
        )

    def alternative(
        self, value: str, *, recipe: Recipe | None = None, layout: Layout | None = None
    ) -> Alternative:
        found = predict(
            self.wish.model, layout or self.layout, recipe or self.recipe, self.efficiency
        )
        return Alternative(
            value=value,
            required_gib=found.memory.required_gib,
            fits=found.memory.fits,
            tokens_per_second_per_gpu=found.tokens_per_second_per_gpu,
        )

    @property
    def best(self) -> str:
        """What the search preferred this for."""
        if not self.candidate.memory.fits:
            return "what needs the least memory"
        return (
            "the fastest that is predicted to fit, or the simplest of those less than "
            f"{INDISTINGUISHABLE:.0%} slower,"
        )

    def batch(self) -> Decision:
        recipe, wish, memory = self.recipe, self.wish, self.candidate.memory
        share, size = wish.share(self.layout), recipe.micro_batch_size
        used = f"{memory.required_gib:.1f} of {memory.budget_gib:.1f} GiB"
        fixed = wish.overrides.micro_batch_size is not None
        if fixed:
            reason = f"micro_batch_size {size} was given; it is predicted to need {used}"
        elif not memory.fits:
            reason = f"micro_batch_size {size} is the smallest and is predicted to need {used}"
        elif recipe.batch_growth:
            reason = (
                f"starts at micro_batch_size {size} ({used}) and grows to "
                f"{recipe.batch_growth[-1]} while measured memory allows; the start may be "
                f"predicted to need {wish.tier.start_fraction:.0%} of the budget"
            )
        else:
            reason = (
                f"micro_batch_size {size} is the largest predicted to fit ({used}) of those that "
                f"divide the {plural(share, 'sequence')} a data-parallel rank has per step"
            )
        below = [one for one in divisors(share) if one < size][-2:]
        above = [one for one in divisors(share) if one > size][:2]
        return self.decision(
            "batch",
            values={
                "sequence_length": recipe.sequence_length,
                "global_batch_tokens": recipe.global_batch_tokens,
                "micro_batch_size": size,
                "batch_growth": list(recipe.batch_growth),
                "loss_chunks": recipe.loss_chunks,
            },
            follows=not fixed and memory.fits,
            reason=reason,
            alternatives=(
                self.alternative(f"micro_batch_size {one}", recipe=self.of_size(self.layout, one))
                for one in (*below, *above)
            ),
        )

    def of_size(self, layout: Layout, size: int) -> Recipe:
        """The recipe with another micro-batch and the loss pieces that follow from it."""
        wish = self.wish
        tokens = size * wish.sequence_length // layout.context_parallel
        chunks = wish.overrides.loss_chunks or default_loss_chunks(wish.model, tokens=tokens)
        return replace(
            self.recipe,
            micro_batch_size=size,
            batch_growth=(),
            loss_chunks=chunks,
            global_batch_tokens=wish.batch_tokens(layout),
        )

    def precision(self) -> Decision:
        chosen, tier = self.recipe.precision, self.wish.tier
        same_bits = chosen.removeprefix("mx")[:3] == tier.precision[:3]
        given = self.wish.overrides.precision is not None
        return self.decision(
            "precision",
            values={"precision": chosen},
            follows=chosen == tier.precision or (same_bits and tier.precision == "fp8"),
            reason=(f"{chosen} was given" if given else f"the {tier.tier} tier's recipe: {chosen}")
            + "; low precision saves time, hardly memory: masters and optimizer stay fp32",
            alternatives=(
                self.alternative(other, recipe=replace(self.recipe, precision=other))
                for other in get_args(Precision)
                if other != chosen and self.can_compute_in(other)
            ),
        )

    def can_compute_in(self, precision: Precision) -> bool:
        """Whether the layout chosen has kernels for it."""
        layout = self.layout
        return tensor_parallel_works(
            self.wish.model, layout.tensor_parallel, precision
        ) and ulysses_suffices(layout.context_parallel, layout.ulysses, precision)

    def activation_checkpointing(self) -> Decision:
        chosen, tier = self.recipe.activation_checkpointing, self.wish.tier
        given = self.wish.overrides.activation_checkpointing is not None
        if tier.tier == "small":
            follows = chosen == "none" or chosen.startswith("every:")
        else:
            follows = chosen != "none"
        kinds = [kind for chain in tier.checkpointing for kind in chain]
        kinds = ["every:K" if kind == "every" else kind for kind in kinds]
        return self.decision(
            "activation_checkpointing",
            values={"activation_checkpointing": chosen},
            follows=follows,
            reason=f"{chosen} was given"
            if given
            else f"{chosen}: {self.best} of " + ", ".join(kinds),
            alternatives=(
                self.alternative(mode, recipe=replace(self.recipe, activation_checkpointing=mode))
                for mode in CHECKPOINTING_SHOWN
                if mode != chosen
            ),
        )

    def distribution(self) -> Decision:
        layout, tier = self.layout, self.wish.tier
        instances = self.wish.gpus / P6_B200.gpus
        most = FEW_INSTANCES if tier.tier == "mid" else tier.maximum_instances
        return self.decision(
            "distribution",
            values={
                "gpus": self.wish.gpus,
                "shard_gpus": layout.shard_gpus,
                "replicas": layout.replicas,
                "context_parallel": layout.context_parallel,
                "ulysses": layout.ulysses,
                "tensor_parallel": layout.tensor_parallel,
                "reshard_after_forward": layout.reshard_after_forward,
                "gradient_sync": layout.gradient_sync,
            },
            follows=tier.minimum_instances <= instances <= most or instances < 1,
            reason=f"{describe_layout(layout)}: {self.best} of the "
            f"{plural(len(self.wish.layouts), 'way')} to divide {plural(layout.gpus, 'GPU')} "
            "that the model, the batch and the settings allow",
            alternatives=self.other_layouts(),
        )

    def other_layouts(self) -> Iterator[Alternative]:
        """The chosen layout with one value changed, where the model and the batch allow it."""
        for layout in neighbouring_layouts(self.wish, self.layout):
            chosen = self.recipe.micro_batch_size
            size = max(one for one in divisors(self.wish.share(layout)) if one <= chosen)
            words = describe_layout(layout)
            yield self.alternative(
                words if size == chosen else f"{words}, micro_batch_size {size}",
                recipe=self.of_size(layout, size),
                layout=layout,
            )

    def monitoring(self) -> Decision:
        names = {metric.key: metric.name for metric in METRICS}
        speed = self.candidate.throughput
        total = speed.tokens_per_second_per_gpu * self.wish.gpus
        return self.decision(
            "monitoring",
            values={
                "metrics": [names[key] for key in WATCHED],
                "expected": {
                    names["tokens_per_second"]: total,
                    names["mfu"]: speed.mfu,
                    names["memory_reserved_gib"]: self.candidate.memory.reserved_gib,
                },
            },
            follows=True,
            reason=f"the run reports these beside the predictions: {total:,.0f} tokens/s over all "
            f"GPUs, {speed.mfu:.0%} model FLOPs utilisation, "
            f"{self.candidate.memory.reserved_gib:.1f} GiB reserved per GPU",
            alternatives=(),
        )

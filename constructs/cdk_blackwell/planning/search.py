"""The best layout and recipe for a wish: all candidates, cut by physics, ranked by speed.

A *branch* is a way to divide the ranks: tensor parallel, shard, context parallel, Ulysses. Inside
it vary whether gathered weights are kept, when gradients are reduced, which blocks are
checkpointed, and the micro-batch size. Three facts keep the search short, and a test compares it
with a full enumeration:

* Memory grows with the micro-batch and shrinks with more checkpointing, so along each chain of
  checkpointing values the largest size that fits only grows: bisection finds each stair of that
  edge, and the candidates behind it are slower by the next fact.
* Of two candidates that differ in one value, the one with a larger micro-batch, less recomputation,
  kept weights or a rarer reduction is never slower. So the fastest thing a branch could do without
  any memory limit bounds it, and branches are opened in that order until a bound falls below what
  has been found.
* Predictions closer than 3 % are equal for all anyone knows; then the simpler layout is taken.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Final

from cdk_blackwell.planning.efficiency import Efficiency
from cdk_blackwell.planning.hardware import memory_budget_gib
from cdk_blackwell.planning.memory import GIB
from cdk_blackwell.planning.predictions import (
    Candidate,
    predict,
    predict_memory,
    predict_throughput,
)
from cdk_blackwell.planning.recipes import default_loss_chunks, default_optimizer
from cdk_blackwell.planning.run_spec import GradientSync, Layout, Optimizer, Recipe
from cdk_blackwell.planning.tiers import checkpointing_chains
from cdk_blackwell.planning.wish import Wish

INDISTINGUISHABLE: Final = 0.03
"""Relative difference in predicted speed that decides nothing: against published runs the
prediction itself is off by more, and the simpler layout has less that can go wrong."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """What a search found."""

    fitting: tuple[Candidate, ...]
    """Best first; each with the largest micro-batch that fits its layout and checkpointing."""
    closest: Candidate
    """The first of ``fitting``; when nothing fits, what needs the least memory."""


def search_layouts(wish: Wish, efficiency: Efficiency | None = None) -> Ranking:
    """Rank the candidates that fit the memory budget by predicted tokens per second."""
    search = _Search(wish=wish, efficiency=efficiency)
    found = search.within(INDISTINGUISHABLE)
    if found:
        ranked = tuple(search.ranked(found))
        return Ranking(fitting=ranked, closest=ranked[0])
    return Ranking(fitting=(), closest=search.smallest())


def near_best(
    wish: Wish, efficiency: Efficiency | None = None, *, within: float
) -> tuple[Candidate, ...]:
    """What fits and is predicted at most the fraction ``within`` slower than the best.

    Fastest first; empty where nothing fits.
    """
    found = _Search(wish=wish, efficiency=efficiency).within(within)
    by_speed = sorted(found, key=lambda one: one.tokens_per_second_per_gpu, reverse=True)
    least = (1 - within) * by_speed[0].tokens_per_second_per_gpu if by_speed else 0.0
    return tuple(one for one in by_speed if one.tokens_per_second_per_gpu >= least)


@dataclass(frozen=True, kw_only=True)
class _Search:
    wish: Wish
    efficiency: Efficiency | None

    @cached_property
    def chains(self) -> tuple[tuple[str, ...], ...]:
        """Checkpointing values to try, each chain from least recomputation to least memory."""
        fixed = self.wish.overrides.activation_checkpointing
        if fixed is not None:
            return ((fixed,),)
        return checkpointing_chains(self.wish.tier, self.wish.model.num_hidden_layers)

    @cached_property
    def preference(self) -> dict[str, int]:
        """Place of a checkpointing value in the tier's order."""
        modes = [mode for chain in self.chains for mode in chain]
        return {mode: place for place, mode in enumerate(modes)}

    @cached_property
    def optimizer(self) -> Optimizer:
        overrides, wish = self.wish.overrides, self.wish
        batch = wish.batch_tokens(wish.layouts[0])
        chosen = overrides.optimizer or default_optimizer(
            wish.model, train_steps=-(-wish.train_tokens // batch)
        )
        implementation = overrides.optimizer_implementation or chosen.implementation
        return replace(chosen, implementation=implementation)

    def recipe(self, layout: Layout, size: int, checkpointing: str) -> Recipe:
        """With everything that follows from the three."""
        wish, overrides = self.wish, self.wish.overrides
        tokens = size * wish.sequence_length // layout.context_parallel
        return Recipe(
            precision=wish.precision,
            sequence_length=wish.sequence_length,
            global_batch_tokens=wish.batch_tokens(layout),
            micro_batch_size=size,
            activation_checkpointing=checkpointing,
            loss_chunks=overrides.loss_chunks or default_loss_chunks(wish.model, tokens=tokens),
            compile=True if overrides.compile is None else overrides.compile,
            seed=overrides.seed or 0,
            optimizer=self.optimizer,
            bf16_edge_blocks=overrides.bf16_edge_blocks or 0,
        )

    def sizes(self, layout: Layout) -> tuple[int, ...]:
        """Micro-batch sizes worth trying: to reduce once per step takes several micro-batches."""
        sizes = self.wish.sizes(layout)
        if layout.gradient_sync == "step" and self.wish.fixed.gradient_sync is None:
            return tuple(size for size in sizes if size < self.wish.share(layout))
        return sizes

    def least_gib(self, layout: Layout) -> float:
        """What a GPU holds whatever the recipe: masters and optimizer, and the blocks' gathered
        weights and whole gradients where the layout keeps them."""
        model, sizes = self.wish.model, self.sizes(layout)
        blocks = model.num_hidden_layers * model.layer_parameter_count / layout.tensor_parallel
        held = 12 * model.parameter_count / (layout.shard_gpus * layout.tensor_parallel)
        if not layout.reshard_after_forward:
            held += (1 if self.wish.precision == "fp8" else 2) * blocks
        if layout.gradient_sync == "step" and sizes and sizes[-1] < self.wish.share(layout):
            held += 4 * blocks
        return held / GIB

    def fits(self, layout: Layout, size: int, checkpointing: str) -> bool:
        """Whether memory allows it."""
        recipe = self.recipe(layout, size, checkpointing)
        return predict_memory(self.wish.model, layout, recipe).fits

    def does_not_fit(self, layout: Layout, checkpointing: str, size: int) -> bool:
        """The opposite, with the size last."""
        return not self.fits(layout, size, checkpointing)

    def speed(self, layout: Layout, size: int, checkpointing: str) -> float:
        """Predicted tokens per second and GPU."""
        recipe = self.recipe(layout, size, checkpointing)
        return predict_throughput(
            self.wish.model, layout, recipe, self.efficiency
        ).tokens_per_second_per_gpu

    def within(self, slack: float) -> list[Candidate]:
        """Everything on the edge of what fits that may be within ``slack`` of the best."""
        found: list[Candidate] = []
        worth = 0.0
        for bound, branch, chain in self.by_bound():
            if bound < worth:
                break
            for candidate in self.fitting(branch, chain, worth):
                found.append(candidate)
                worth = max(worth, candidate.tokens_per_second_per_gpu * (1 - slack))
        return found

    def by_bound(self) -> list[tuple[float, Layout, tuple[str, ...]]]:
        """Branches and chains with the speed that none of their candidates passes, fastest first.

        ``wish.layouts`` keep weights and reduce once per step, which is the fastest way.
        """
        return sorted(
            (
                (self.speed(branch, self.wish.sizes(branch)[-1], chain[0]), branch, chain)
                for branch in self.wish.layouts
                for chain in self.chains
            ),
            key=lambda entry: entry[0],
            reverse=True,
        )

    def fitting(self, branch: Layout, chain: tuple[str, ...], worth: float) -> Iterator[Candidate]:
        """The edge of what fits: for each way to communicate and each checkpointing value, the
        largest micro-batch, when it is larger than with less checkpointing.

        What cannot reach ``worth`` tokens per second is skipped.
        """
        budget = memory_budget_gib()
        layouts = tuple(self.communications(branch))
        # The last one needs the least memory.
        if self.least_gib(layouts[-1]) > budget or not self.fits(
            layouts[-1], self.sizes(layouts[-1])[0], chain[-1]
        ):
            return
        for layout in layouts:
            if self.least_gib(layout) <= budget:
                yield from self._stairs(layout, chain, self.sizes(layout), worth)

    def _stairs(
        self, layout: Layout, chain: tuple[str, ...], sizes: tuple[int, ...], worth: float
    ) -> Iterator[Candidate]:
        fitting = place = 0  # sizes that fit so far, and the checkpointing value to try next
        while fitting < len(sizes):
            # The least checkpointing with which the next size fits ...
            place = bisect_left(
                chain, True, lo=place, key=partial(self.fits, layout, sizes[fitting])
            )
            if place == len(chain) or self.speed(layout, sizes[-1], chain[place]) < worth:
                return
            # ... and the first size with which that does not fit any more.
            fitting = bisect_left(
                sizes, True, lo=fitting + 1, key=partial(self.does_not_fit, layout, chain[place])
            )
            recipe = self.recipe(layout, sizes[fitting - 1], chain[place])
            yield predict(self.wish.model, layout, recipe, self.efficiency)
            place += 1

    def communications(self, branch: Layout) -> Iterator[Layout]:
        """Keep gathered weights or not; reduce once per step or per micro-batch."""
        fixed = self.wish.fixed
        keeps = (
            (False, True)
            if fixed.reshard_after_forward is None
            else (branch.reshard_after_forward,)
        )
        syncs: tuple[GradientSync, ...] = ("step", "micro_batch")
        if fixed.gradient_sync is not None:
            syncs = (fixed.gradient_sync,)
        elif self.wish.share(branch) == 1:
            # One micro-batch per step is reduced once either way; whole gradients only cost memory.
            syncs = ("micro_batch",)
        for reshard in keeps:
            for sync in syncs:
                yield replace(branch, reshard_after_forward=reshard, gradient_sync=sync)

    def smallest(self) -> Candidate:
        """What needs the least memory of all that the wish leaves open."""
        candidates = [
            (layout, self.recipe(layout, self.wish.sizes(branch)[0], chain[-1]))
            for branch in self.wish.layouts
            for layout in self.communications(branch)
            for chain in self.chains
        ]
        layout, recipe = min(
            candidates, key=lambda pair: predict_memory(self.wish.model, *pair).reserved_gib
        )
        return predict(self.wish.model, layout, recipe, self.efficiency)

    def ranked(self, found: list[Candidate]) -> list[Candidate]:
        """Fastest first; among the indistinguishable first ones, the simplest first."""
        by_speed = sorted(found, key=lambda one: one.tokens_per_second_per_gpu, reverse=True)
        limit = by_speed[0].tokens_per_second_per_gpu * (1 - INDISTINGUISHABLE)
        equal = [one for one in by_speed if one.tokens_per_second_per_gpu >= limit]
        return sorted(equal, key=self.simplicity) + by_speed[len(equal) :]

    def simplicity(self, candidate: Candidate) -> tuple[int, ...]:
        """Smaller is simpler."""
        layout, recipe = candidate.layout, candidate.recipe
        return (
            self.preference[recipe.activation_checkpointing],
            layout.tensor_parallel,
            layout.context_parallel,
            layout.shard_gpus,
            -layout.ulysses,
            layout.reshard_after_forward,
            layout.gradient_sync == "micro_batch",
            -recipe.micro_batch_size,
        )

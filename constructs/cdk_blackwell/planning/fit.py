"""Which recipe fits: the least checkpointing, then the largest micro-batch, and what to do if none.

Memory is predicted for plain (eager) kernels, which keep more than compiled ones: how much less
torch.compile keeps is not verified, and a run that dies for memory costs more than a smaller batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import get_args

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from cdk_blackwell.planning.errors import DoesNotFitError, PlanError
from cdk_blackwell.planning.memory import MemoryEstimate, estimate_memory
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import (
    CHECKPOINTING_LADDER,
    RecipeOverrides,
    default_loss_chunks,
    default_optimizer,
)
from cdk_blackwell.planning.run_spec import Layout, Optimizer, Precision, Recipe

SUGGESTIONS = 2
"""Changes named in an error."""
SHORTEST_SUGGESTED_SEQUENCE = 512
"""Tokens; a shorter sequence is not worth proposing."""


@dataclass(frozen=True, kw_only=True)
class Wish:
    """What a recipe has to fulfil; already checked."""

    model: ModelShape
    sequence_length: int
    global_batch_tokens: int
    train_tokens: int
    layout: Layout
    overrides: RecipeOverrides

    @property
    def share(self) -> int:
        """Sequences of each data-parallel rank per optimizer step."""
        ranks = self.layout.shard_gpus * self.layout.replicas // self.layout.context_parallel
        return self.global_batch_tokens // self.sequence_length // ranks


Candidate = tuple[Recipe, MemoryEstimate]


def fit(wish: Wish) -> Candidate:
    """The first candidate that fits; else a DoesNotFitError naming changes that do."""
    check_overrides(wish)
    found = first_fitting(wish)
    if found is not None:
        return found
    recipe, memory = min(candidates(wish), key=lambda candidate: candidate[1].reserved_gib)
    pinned = {
        "activation_checkpointing": recipe.activation_checkpointing,
        "micro_batch_size": recipe.micro_batch_size,
        "loss_chunks": recipe.loss_chunks,
    }
    changes = list(fitting_changes(wish))[:SUGGESTIONS]
    raise DoesNotFitError(
        f"{wish.model.name} at {wish.sequence_length:,} tokens needs {memory.reserved_gib:.1f} GiB "
        f"of {memory.budget_gib:.1f} GiB per GPU with "
        + ", ".join(f"{name} {value}" for name, value in pinned.items())
        + ": "
        + (
            f"use {' or '.join(changes)}"
            if changes
            else "no single change fits; use a smaller model"
        )
    )


def first_fitting(wish: Wish) -> Candidate | None:
    """The fastest candidate within the budget, None when there is none."""
    return next((found for found in candidates(wish) if found[1].fits), None)


def candidates(wish: Wish) -> Iterator[Candidate]:
    """All recipes that the overrides leave open, fastest first."""
    model, overrides = wish.model, wish.overrides
    pinned, size_pinned = overrides.activation_checkpointing, overrides.micro_batch_size
    train_steps = -(-wish.train_tokens // wish.global_batch_tokens)
    base = Recipe(
        precision=overrides.precision or "bf16",
        sequence_length=wish.sequence_length,
        global_batch_tokens=wish.global_batch_tokens,
        micro_batch_size=1,
        activation_checkpointing="none",
        loss_chunks=1,
        compile=True if overrides.compile is None else overrides.compile,
        seed=overrides.seed or 0,
        optimizer=overrides.optimizer or default_optimizer(model, train_steps=train_steps),
    )
    for checkpointing in (pinned,) if pinned else CHECKPOINTING_LADDER:
        for size in (size_pinned,) if size_pinned else divisors(wish.share):
            tokens = size * wish.sequence_length // wish.layout.context_parallel
            recipe = replace(
                base,
                micro_batch_size=size,
                activation_checkpointing=checkpointing,
                loss_chunks=overrides.loss_chunks or default_loss_chunks(model, tokens=tokens),
            )
            yield (
                recipe,
                estimate_memory(
                    model,
                    tokens=tokens,
                    sequence_length=wish.sequence_length,
                    shard_gpus=wish.layout.shard_gpus,
                    activation_checkpointing=checkpointing,
                    loss_chunks=recipe.loss_chunks,
                    precision=recipe.precision,
                    accumulates=size < wish.share,
                ),
            )


def fitting_changes(wish: Wish) -> Iterator[str]:
    """Single changes of the wish, nearest first, each checked to fit."""
    overrides = wish.overrides
    for name in ("micro_batch_size", "activation_checkpointing", "loss_chunks", "precision"):
        if getattr(overrides, name) is not None:
            found = first_fitting(replace(wish, overrides=replace(overrides, **{name: None})))
            if found:
                yield _describe(name, getattr(found[0], name), found[1])
    memory_choices = ("micro_batch_size", "activation_checkpointing", "loss_chunks")
    if sum(getattr(overrides, name) is not None for name in memory_choices) > 1:
        freed = replace(overrides, **dict.fromkeys(memory_choices))
        found = first_fitting(replace(wish, overrides=freed))
        if found:
            recipe, memory = found
            yield (
                f"micro_batch_size {recipe.micro_batch_size} with activation_checkpointing "
                f"{recipe.activation_checkpointing} and loss_chunks {recipe.loss_chunks} "
                f"({memory.reserved_gib:.1f} GiB)"
            )
    length = wish.sequence_length
    while length % 2 == 0 and length // 2 >= SHORTEST_SUGGESTED_SEQUENCE:
        length //= 2
        shorter = replace(wish, sequence_length=length)
        size = overrides.micro_batch_size
        if size is None or shorter.share % size == 0:
            found = first_fitting(shorter)
            if found:
                yield _describe("sequence_length", f"{length:,}", found[1])
                return


def _describe(name: str, value: object, memory: MemoryEstimate) -> str:
    return f"{name} {value} ({memory.reserved_gib:.1f} GiB)"


def check_overrides(wish: Wish) -> None:
    """Refuse values that no recipe can have (PlanError)."""
    overrides = wish.overrides
    if overrides.activation_checkpointing is not None:
        try:
            checkpointing_interval(overrides.activation_checkpointing)
        except (TypeError, ValueError) as error:
            raise PlanError(str(error)) from error
    if overrides.precision is not None and overrides.precision not in get_args(Precision):
        raise PlanError(
            f"precision is {overrides.precision!r}; allowed are {', '.join(get_args(Precision))}"
        )
    if overrides.compile is not None and not isinstance(overrides.compile, bool):
        raise PlanError(f"compile is {overrides.compile!r}; give True or False")
    if overrides.optimizer is not None and not isinstance(overrides.optimizer, Optimizer):
        raise PlanError(f"optimizer is {overrides.optimizer!r}; give an Optimizer")
    _check_whole("seed", overrides.seed, least=0, most=2**63 - 1)
    most_chunks = wish.global_batch_tokens
    _check_whole("loss_chunks", overrides.loss_chunks, least=1, most=most_chunks)
    size, allowed = overrides.micro_batch_size, divisors(wish.share)
    if size is not None and (isinstance(size, bool) or size not in allowed):
        wanted = size if isinstance(size, int) else 1
        near = sorted(sorted(allowed, key=lambda divisor: abs(divisor - wanted))[:4])
        raise PlanError(
            f"micro_batch_size is {size!r}; it must divide the {wish.share} sequences that each "
            f"GPU has per step: use {' or '.join(map(str, near))}"
        )


def _check_whole(name: str, value: object, *, least: int, most: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PlanError(f"{name} is {value!r}; a whole number from {least} to {most:,} is needed")


def divisors(number: int) -> tuple[int, ...]:
    """All divisors, largest first."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}, reverse=True))

"""A checked request with its defaults filled in: what the search works on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from cdk_blackwell.planning.divisibility import (
    divisors,
    either,
    nearest,
    sequence_divides,
    tensor_parallel_works,
    ulysses_divides,
    ulysses_suffices,
)
from cdk_blackwell.planning.errors import PlanError, UnusableValueError
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import (
    LayoutOverrides,
    RecipeOverrides,
    default_global_batch_tokens,
    default_train_tokens,
)
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.run_spec import Layout, Precision
from cdk_blackwell.planning.tiers import TIERS, TierRecipe, tier_for


@dataclass(frozen=True, kw_only=True)
class Wish:
    """One number of GPUs, one model, one sequence length; the layout and recipe may be open."""

    tier: TierRecipe
    model: ModelShape
    sequence_length: int
    gpus: int
    global_batch_tokens: int | None
    """None: one micro-batch per step, whose size is fixed."""
    train_tokens: int
    overrides: RecipeOverrides
    fixed: LayoutOverrides

    @property
    def precision(self) -> Precision:
        """Given, or the tier's."""
        return self.overrides.precision or self.tier.precision

    def share(self, layout: Layout) -> int:
        """Sequences of each data-parallel rank per step; 0 when the batch does not divide."""
        if self.global_batch_tokens is None:
            return self.overrides.micro_batch_size or 1
        share, rest = divmod(self.global_batch_tokens, self.sequence_length * layout.data_parallel)
        return 0 if rest else share

    def batch_tokens(self, layout: Layout) -> int:
        """Tokens per optimizer step over all ranks."""
        return self.share(layout) * layout.data_parallel * self.sequence_length

    def sizes(self, layout: Layout) -> tuple[int, ...]:
        """Micro-batch sizes that divide a rank's share, smallest first; none when none does."""
        allowed = divisors(self.share(layout)) if self.share(layout) else ()
        size = self.overrides.micro_batch_size
        return allowed if size is None else tuple(one for one in allowed if one == size)

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """All layouts that the model, the GPUs and the batch allow, gathered once per step.

        A shard is as large as an instance at least: smaller ones inside it would hold more and,
        over the same NVLink, save nothing (a layout that fixes ``shard_gpus`` may have them).
        """
        return tuple(layout for layout in self.shapes if self.sizes(layout))

    @cached_property
    def shapes(self) -> tuple[Layout, ...]:
        """As ``layouts``, whatever the batch."""
        return tuple(
            Layout(
                shard_gpus=shards,
                replicas=self.gpus // (shards * tensor),
                context_parallel=context,
                tensor_parallel=tensor,
                ulysses=ulysses,
                reshard_after_forward=bool(self.fixed.reshard_after_forward),
                gradient_sync=self.fixed.gradient_sync or "step",
            )
            for tensor in self._tensor_parallel()
            for shards in self._shards(tensor)
            for context in self._context_parallel(shards)
            for ulysses in self._ulysses(tensor, context)
        )

    def _tensor_parallel(self) -> Iterator[int]:
        if self.fixed.tensor_parallel is not None:
            yield self.fixed.tensor_parallel
            return
        for ranks in divisors(min(P6_B200.gpus, self.gpus)):
            if tensor_parallel_works(self.model, ranks, self.precision):
                yield ranks

    def _shards(self, tensor: int) -> Iterator[int]:
        ranks, replicas = self.gpus // tensor, self.fixed.replicas
        node = min(P6_B200.gpus, self.gpus)
        for shards in divisors(ranks):
            if replicas is not None and shards * replicas != ranks:
                continue
            if self.fixed.shard_gpus is not None:
                if shards == self.fixed.shard_gpus:
                    yield shards
            elif replicas is not None or shards * tensor % node == 0:
                yield shards

    def _context_parallel(self, shards: int) -> Iterator[int]:
        fixed = self.fixed.context_parallel
        for ranks in divisors(shards):
            # Unless fixed, a power of two.
            if ranks == fixed or (fixed is None and ranks & (ranks - 1) == 0):
                yield ranks

    def _ulysses(self, tensor: int, context: int) -> Iterator[int]:
        """As many as can, unless fixed: exchanging heads moves a fraction of what gathering keys
        and values does, and stays within the instance."""
        possible = [
            ranks
            for ranks in divisors(context)
            if ulysses_divides(self.model, ranks, tensor_parallel=tensor)
            and sequence_divides(self.sequence_length, context, ranks)
            and ulysses_suffices(context, ranks, self.precision)
        ]
        if self.fixed.ulysses is None:
            yield from possible[-1:]
        elif self.fixed.ulysses in possible:
            yield self.fixed.ulysses


def make_wish(request: Request, *, gpus: int) -> Wish:
    """Fill in batch and tokens of a checked request; PlanError when no layout can exist."""
    model, overrides, fixed = request.model, request.overrides, request.layout
    batch = request.global_batch_tokens
    if batch is None and overrides.micro_batch_size is None:
        batch = default_global_batch_tokens(
            sequence_length=request.sequence_length,
            gpus=gpus,
            tensor_parallel=fixed.tensor_parallel or 1,
            context_parallel=fixed.context_parallel,
        )
    wish = Wish(
        tier=TIERS[request.tier] if request.tier else tier_for(model.parameter_count),
        model=model,
        sequence_length=request.sequence_length,
        gpus=gpus,
        global_batch_tokens=batch,
        train_tokens=request.train_tokens or default_train_tokens(model),
        overrides=overrides,
        fixed=fixed,
    )
    _check_has_layouts(wish)
    return wish


def _check_has_layouts(wish: Wish) -> None:
    if wish.layouts:
        return
    if not wish.shapes:
        given = [
            f"{name} {value}"
            for name in ("shard_gpus", "replicas", "context_parallel", "ulysses", "tensor_parallel")
            if (value := getattr(wish.fixed, name)) is not None
        ]
        raise UnusableValueError(
            f"{', '.join(given)} and sequence_length {wish.sequence_length:,} contradict each "
            f"other on {wish.gpus} GPU{'' if wish.gpus == 1 else 's'}"
        )
    batch, length = wish.global_batch_tokens, wish.sequence_length
    assert batch is not None  # without a batch the share is the micro-batch, which divides itself
    shares = sorted({share for layout in wish.shapes if (share := wish.share(layout))})
    if not shares:
        _refuse_batch(wish, batch=batch, length=length)
    size = wish.overrides.micro_batch_size
    assert size is not None  # an open size divides every share
    allowed = {divisor for share in shares for divisor in divisors(share)}
    raise PlanError(
        f"micro_batch_size is {size:,}; it must divide the {either(shares[:4])} sequences that "
        f"each data-parallel rank has per step: use {either(nearest(allowed, size))}"
    )


def _refuse_batch(wish: Wish, *, batch: int, length: int) -> None:
    """Name the nearest batches that a layout can divide."""
    every = {layout.data_parallel for layout in wish.shapes}
    # A batch near the given one for the most ranks that it is large enough for.
    ranks = max((n for n in every if n * length <= batch), default=min(every))
    unit = ranks * length
    below = batch // unit * unit
    raise PlanError(
        f"global_batch_tokens is {batch:,}; it must be a multiple of sequence_length {length:,} x "
        f"{ranks} data-parallel ranks = {unit:,}: use "
        f"{either([value for value in (below, below + unit) if value])}"
    )

"""What is asked of the planner, and changes of it that can be applied as they are proposed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import (
    ANY_LAYOUT,
    NO_OVERRIDES,
    LayoutOverrides,
    RecipeOverrides,
)

if TYPE_CHECKING:
    from cdk_blackwell.planning.trial import TrialReport


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of ``make_plan``, not checked yet; None leaves a choice open."""

    model: ModelShape
    sequence_length: int
    tier: Tier | None = None
    global_batch_tokens: int | None = None
    train_tokens: int | None = None
    instance_count: int | None = None
    gpus: int | None = None
    overrides: RecipeOverrides = NO_OVERRIDES
    layout: LayoutOverrides = ANY_LAYOUT
    hourly_price_usd: float | None = None
    max_cost_usd: float | None = None
    measured: TrialReport | None = None

    @property
    def describes_a_run(self) -> bool:
        """Whether it asks about one given run instead of for the best one.

        Shard and micro-batch fix what a GPU holds and computes, and without a global batch there is
        nothing to divide, so there is nothing left to search for.
        """
        return (
            self.layout.shard_gpus is not None
            and self.overrides.micro_batch_size is not None
            and self.global_batch_tokens is None
        )

    def completed(self) -> Request:
        """The same, with the rest of a described run's layout as in plain FSDP2."""
        if not self.describes_a_run:
            return self
        layout = self.layout
        plain: dict[str, Any] = {
            "context_parallel": 1,
            "tensor_parallel": 1,
            "reshard_after_forward": True,
            "gradient_sync": "micro_batch",
        }
        if layout.ulysses is not None:
            del plain["context_parallel"]
        return replace(
            self,
            layout=replace(
                layout,
                **{name: item for name, item in plain.items() if getattr(layout, name) is None},
            ),
        )

    def value(self, name: str) -> Any:
        """A setting by its name, whichever of the three objects holds it."""
        if name in _RECIPE:
            return getattr(self.overrides, name)
        return getattr(self.layout if name in _LAYOUT else self, name)

    def changed(self, settings: Mapping[str, Any]) -> Request:
        """The same request with other settings, each named as in ``value``."""
        recipe = {name: value for name, value in settings.items() if name in _RECIPE}
        layout = {name: value for name, value in settings.items() if name in _LAYOUT}
        rest = {
            name: value
            for name, value in settings.items()
            if name not in _RECIPE and name not in _LAYOUT
        }
        return replace(
            self,
            overrides=replace(self.overrides, **recipe),
            layout=replace(self.layout, **layout),
            **rest,
        )


_RECIPE = frozenset(item.name for item in fields(RecipeOverrides))
_LAYOUT = frozenset(item.name for item in fields(LayoutOverrides))


@dataclass(frozen=True, kw_only=True)
class Change:
    """A way out of a refusal: settings to replace, already checked to pass."""

    settings: dict[str, Any]
    """By the names that ``make_plan``, ``RecipeOverrides`` and ``LayoutOverrides`` use."""
    required_gib: float
    """Predicted GiB per GPU after the change, the margin included."""
    total_usd: float | None
    """Predicted cost after the change; None where no price was given."""
    words: str = field(compare=False)
    """For people."""

    def applied(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Keyword arguments for ``make_plan`` with the change made."""
        request = Request(**arguments).changed(self.settings)
        return {item.name: getattr(request, item.name) for item in fields(Request)}

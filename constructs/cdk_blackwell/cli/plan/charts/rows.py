"""What the pictures show, as plain rows."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class MemoryColumn:
    """Predicted memory of one micro-batch size, all else as in the plan."""

    micro_batch_size: int
    parts_gib: dict[str, float]
    """Part -> GiB per GPU, the static ones first."""
    chosen: bool

    @property
    def height_gib(self) -> float:
        """Of the column: what must stay below the budget."""
        return sum(self.parts_gib.values())


@dataclass(frozen=True, kw_only=True)
class NodePoint:
    """The best predicted plan of one kind of layout on one number of nodes."""

    nodes: int
    shard_gpus: int
    """GPUs that share one copy of the weights."""
    tokens_per_second: float
    """Over all GPUs."""
    cost: float
    """US dollars, or node-hours when no price was given, for all training tokens."""
    description: str
    """The layout in full."""
    chosen: bool


@dataclass(frozen=True, kw_only=True)
class ChartData:
    """Both pictures of one plan."""

    title: str
    subtitle: str
    memory: tuple[MemoryColumn, ...]
    budget_gib: float
    nodes: tuple[NodePoint, ...]
    priced: bool
    """Whether ``NodePoint.cost`` is in US dollars."""

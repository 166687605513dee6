"""The three size tiers as data: what each fixes, what it leaves to the search, and why.

The policy is this project's reading of the article it follows (see the README); ``advice`` holds
the article's recommendation for each group of decisions, which ``plan --explain`` repeats.

A size is meant as models are named. The largest model published as "7B" has 7.62e9 parameters
(Qwen 2.5 7B) and the smallest published as "8B" has 8.03e9 (Llama 3.1 8B), so "up to 7B" ends at
7.75e9. "Up to 30B" ends at 31e9 and "up to 64B" at 66e9 in the same way: Qwen 2.5 32B (32.8e9) and
Yi 34B are above the first, LLaMA 65B (65.3e9) below the second, the 70B models above it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.run_spec import Precision

MAXIMUM_INSTANCES: Final = 64
"""Largest SageMaker training plan for p6-b200."""
INSTANCE_COUNTS: Final = (1, 2, 4, 8, 16, 32, 64)
"""Counts a training plan can have; the planner proposes only these."""

GROUPS: Final = ("batch", "precision", "activation_checkpointing", "distribution", "monitoring")
"""The five groups of decisions, in the article's order."""


@dataclass(frozen=True, kw_only=True)
class TierRecipe:
    """What one tier decides beforehand."""

    tier: Tier
    construct: str
    """Construct that runs this tier."""
    sizes: str
    """Model sizes as the article names them."""
    above_parameters: int
    up_to_parameters: int
    precision: Precision
    checkpointing: tuple[tuple[str, ...], ...]
    """Chains of ``activation_checkpointing`` values open to the search, each from least
    recomputation to least memory; ``every`` stands for all useful ``every:K``."""
    minimum_instances: int
    maximum_instances: int
    start_fraction: float
    """Share of the memory budget that the first micro-batch may be predicted to need. Below 1 the
    run begins smaller and grows, guided by measured memory, to the largest predicted to fit."""
    advice: dict[str, str]

    def takes(self, parameters: int) -> bool:
        """Whether a model of this many parameters belongs to the tier."""
        return self.above_parameters < parameters <= self.up_to_parameters

    def allows_instances(self, count: int) -> bool:
        """Whether the tier's construct runs on so many instances."""
        return self.minimum_instances <= count <= self.maximum_instances


_MONITORING: Final = (
    "watch utilisation and throughput: tokens per second, model FLOPs utilisation, memory, and the "
    "time spent waiting for data"
)
_SYSTEMATIC: Final = "systematic: every block recomputes, in part or in full, or a fixed pattern"

SMALL: Final = TierRecipe(
    tier="small",
    construct="SmallModelJob",
    sizes="up to 7B",
    above_parameters=0,
    up_to_parameters=7_750_000_000,
    precision="bf16",
    # The blocks of a dense decoder are all alike, so "only the most demanding layers" means as few
    # blocks as memory asks for.
    checkpointing=(("none", "every", "full"), ("selective",)),
    minimum_instances=1,
    maximum_instances=1,
    start_fraction=1.0,
    advice={
        "batch": "raise the batch aggressively on the B200's memory",
        "precision": "BF16: stable training with the least tuning",
        "activation_checkpointing": "only on the most demanding transformer layers",
        "distribution": "one node is enough",
        "monitoring": _MONITORING,
    },
)
MID: Final = TierRecipe(
    tier="mid",
    construct="MidModelJob",
    sizes="7B-30B",
    above_parameters=SMALL.up_to_parameters,
    up_to_parameters=31_000_000_000,
    precision="fp8",
    checkpointing=(("selective",), ("every:2", "full")),
    minimum_instances=1,
    maximum_instances=MAXIMUM_INSTANCES,
    # The largest error of a memory prediction known to us is 24 % (tensor parallel rows of
    # published runs, before their margin); a start at three quarters survives even that.
    start_fraction=0.75,
    advice={
        "batch": "raise the batch gradually, watching the memory footprint",
        "precision": "FP8: a marked gain in speed for little loss of quality",
        "activation_checkpointing": _SYSTEMATIC,
        "distribution": "one node or a few",
        "monitoring": _MONITORING,
    },
)
LARGE_SHARDED: Final = TierRecipe(
    tier="large-sharded",
    construct="LargeShardedJob",
    sizes="30B-64B",
    above_parameters=MID.up_to_parameters,
    up_to_parameters=66_000_000_000,
    precision="fp8",
    checkpointing=(("selective",), ("every:2", "full")),
    minimum_instances=2,
    maximum_instances=MAXIMUM_INSTANCES,
    start_fraction=1.0,
    advice={
        "batch": "what the sharding leaves room for",
        "precision": "FP8: a marked gain in speed for little loss of quality",
        "activation_checkpointing": _SYSTEMATIC,
        "distribution": "mandatory; the sharding strategy decides speed and total cost",
        "monitoring": _MONITORING,
    },
)

TIERS: Final = {recipe.tier: recipe for recipe in (SMALL, MID, LARGE_SHARDED)}


def tier_for(parameters: int) -> TierRecipe:
    """The tier of a model of this many parameters; above all tiers, the largest."""
    return next((tier for tier in TIERS.values() if tier.takes(parameters)), LARGE_SHARDED)


def block_ladder(layers: int) -> tuple[str, ...]:
    """``every:K`` from the fewest checkpointed blocks to half of them.

    ``every:K`` checkpoints ``ceil(layers / K)`` blocks; of the intervals that checkpoint equally
    many, the smallest is given, which spreads them evenly.
    """
    by_blocks: dict[int, int] = {}
    for interval in range(2, min(layers, 9999) + 1):
        by_blocks.setdefault(-(-layers // interval), interval)
    return tuple(f"every:{by_blocks[blocks]}" for blocks in sorted(by_blocks))


def checkpointing_chains(recipe: TierRecipe, layers: int) -> tuple[tuple[str, ...], ...]:
    """The tier's chains for a model of so many blocks."""
    return tuple(
        tuple(
            mode
            for link in chain
            for mode in (block_ladder(layers) if link == "every" else (link,))
        )
        for chain in recipe.checkpointing
    )

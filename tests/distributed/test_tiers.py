"""Each tier's kind of recipe trains: what the planner gives it, in miniature and on CPU ranks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.planning.contracts import Tier
from tests.distributed.forked import train_ranks
from tests.training_scripts.tiny import tiny_shape, tiny_spec, write_container

RECIPES: dict[Tier, dict[str, Any]] = {
    "small": {"precision": "bf16", "activation_checkpointing": "every:2"},
    "mid": {
        "precision": "fp8",
        "activation_checkpointing": "full",
        "micro_batch_size": 1,
        "batch_growth": (2, 4),
    },
    "large-sharded": {"precision": "fp8", "activation_checkpointing": "selective"},
}
LAYOUTS: dict[Tier, dict[str, int]] = {
    "small": {"shard_gpus": 2},
    "mid": {"shard_gpus": 2},
    "large-sharded": {"shard_gpus": 2, "replicas": 2},
}
SHAPE = tiny_shape(intermediate_size=64, head_dim=16)
"""Every projection divides by the 16 that 8-bit products ask for."""


@pytest.mark.parametrize("tier", RECIPES)
def test_a_recipe_of_the_tiers_kind_trains(tier: Tier, tmp_path: Path) -> None:
    spec = tiny_spec(steps=4, shape=SHAPE, tier=tier, recipe=RECIPES[tier], layout=LAYOUTS[tier])
    ranks = spec.layout.gpus
    first, *_ = train_ranks(ranks, spec, write_container(tmp_path, spec))
    losses = first.series("loss")
    assert (first.step, first.stopped) == (4, False)
    assert losses[4] < losses[1]

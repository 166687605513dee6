"""What a resumed run must share with the one before, and what may differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdk_blackwell.planning.run_spec import RunSpec
from tests.training_scripts.tiny import tiny_shape, tiny_spec
from trainer.checkpoint import recipe_sha256

SPEC = tiny_spec()
DECIDING: dict[str, RunSpec] = {
    "model": replace(SPEC, model=tiny_shape(rms_norm_eps=1e-6)),
    "recipe": replace(SPEC, recipe=replace(SPEC.recipe, seed=8)),
    "optimizer": replace(
        SPEC,
        recipe=replace(SPEC.recipe, optimizer=replace(SPEC.recipe.optimizer, beta2=0.9)),
    ),
    "data": replace(SPEC, data=replace(SPEC.data, channel="other")),
    "length": replace(SPEC, train_tokens=SPEC.train_tokens + 1),
}
INDIFFERENT: dict[str, RunSpec] = {
    "layout": tiny_spec(layout={"shard_gpus": 4, "replicas": 2}),
    "checkpoint": tiny_spec(checkpoint={"keep": 9}),
    "limits": tiny_spec(limits={"log_interval_steps": 9}),
    "name": tiny_spec(run_id="another", job="another"),
}


@pytest.mark.parametrize("name", DECIDING)
def test_a_run_with_another_result_has_another_hash(name: str) -> None:
    assert recipe_sha256(DECIDING[name]) != recipe_sha256(SPEC)


@pytest.mark.parametrize("name", INDIFFERENT)
def test_what_does_not_decide_the_result_may_change(name: str) -> None:
    assert recipe_sha256(INDIFFERENT[name]) == recipe_sha256(SPEC)

"""What a trial tries: the run's own plan first, then fast candidates that differ."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import Plan, make_plan
from cdk_blackwell.planning.predictions import predict
from cdk_blackwell.planning.run_spec import RunSpec
from cdk_blackwell.planning.trial_candidates import (
    WITHIN,
    as_trial_spec,
    measured_steps,
    trial_candidates,
)
from tests.training_scripts.tiny import tiny_spec


def spec_of(plan: Plan) -> RunSpec:
    return replace(
        tiny_spec(),
        tier=plan.tier,
        model=plan.model,
        recipe=plan.recipe,
        layout=plan.layout,
        train_tokens=plan.train_tokens,
    )


@pytest.fixture(scope="module")
def spec() -> RunSpec:
    return spec_of(make_plan(model=ModelShape.preset("qwen2.5-0.5b"), sequence_length=4096))


def test_the_runs_own_plan_is_tried_first_as_it_is(spec: RunSpec) -> None:
    layout, recipe = trial_candidates(spec, 4)[0]
    assert layout == spec.layout
    assert recipe == spec.recipe


def test_candidates_differ_fit_and_are_within_reach_of_the_best(spec: RunSpec) -> None:
    found = trial_candidates(spec, 4)
    assert len(found) == 4
    assert len({(layout, recipe) for layout, recipe in found}) == 4
    predicted = [predict(spec.model, layout, recipe) for layout, recipe in found]
    best = max(one.tokens_per_second_per_gpu for one in predicted)
    for one in predicted[1:]:
        assert one.memory.fits
        assert one.tokens_per_second_per_gpu >= (1 - WITHIN) * best


def test_what_is_compared_is_the_same_training(spec: RunSpec) -> None:
    for layout, recipe in trial_candidates(spec, 5):
        assert layout.gpus == spec.layout.gpus
        for name in ("precision", "sequence_length", "global_batch_tokens", "optimizer", "seed"):
            assert getattr(recipe, name) == getattr(spec.recipe, name)


def test_a_run_that_the_planner_refuses_is_tried_alone() -> None:
    spec = tiny_spec()
    odd = replace(spec, layout=replace(spec.layout, shard_gpus=3, replicas=1))
    assert [layout for layout, _ in trial_candidates(odd, 5)] == [odd.layout]


def test_a_trial_needs_a_candidate(spec: RunSpec) -> None:
    with pytest.raises(ValueError, match="count is 0"):
        trial_candidates(spec, 0)


def test_warm_up_and_measured_steps_are_equally_many(spec: RunSpec) -> None:
    steps = measured_steps(spec, 5, seconds=3600)
    assert 1 <= steps <= 5
    one = as_trial_spec(spec, spec.layout, spec.recipe, run_id="t-0", steps=steps)
    assert one.train_steps == 2 * steps
    assert one.limits.log_interval_steps == steps
    assert not one.checkpoint.export
    assert one.recipe.batch_growth == ()
    assert one.limits.in_cluster_restarts == 0

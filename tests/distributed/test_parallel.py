"""However many ranks share the work, the training is the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.planning.model_shape import RopeScaling
from cdk_blackwell.planning.run_spec import Layout
from tests.distributed.forked import Told, fork_ranks, train_rank, train_ranks
from tests.training_scripts.tiny import (
    SEQUENCE_LENGTH,
    tiny_shape,
    tiny_spec,
    write_container,
)
from trainer.parallel import World


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Told:
    spec = tiny_spec()
    root = write_container(tmp_path_factory.mktemp("alone"), spec)
    (told,) = train_ranks(1, spec, root)
    return told


def test_the_loss_falls_on_learnable_data(alone: Told) -> None:
    losses = alone.series("loss")
    assert list(losses) == [1, 2, 3, 4, 5, 6]
    assert losses[6] < 0.9 * losses[1]


def test_the_planned_number_of_cpu_ranks_is_not_needed(alone: Told, tmp_path: Path) -> None:
    spec = tiny_spec()
    told = train_ranks(2, spec, write_container(tmp_path, spec))
    assert told[0].series("loss") == pytest.approx(alone.series("loss"), abs=1e-6)
    assert "2 CPU ranks" in told[0].events("layout_adapted")[0]["reason"]
    assert all(not other.records for other in told[1:]), "only rank 0 speaks"


NO_PARALLELISM = {"shard_gpus": 1, "replicas": 1, "context_parallel": 1, "tensor_parallel": 1}
LAYOUTS: list[dict[str, Any]] = [
    {"shard_gpus": 4},
    {"shard_gpus": 2, "replicas": 2},
    {"shard_gpus": 4, "reshard_after_forward": False},
    {"shard_gpus": 2, "replicas": 2, "gradient_sync": "step"},
    {"shard_gpus": 4, "reshard_after_forward": False, "gradient_sync": "step"},
    {"shard_gpus": 4, "context_parallel": 2},
    {"shard_gpus": 4, "context_parallel": 4},
    {"shard_gpus": 2, "replicas": 2, "context_parallel": 2, "ulysses": 2},
    {"shard_gpus": 4, "context_parallel": 4, "ulysses": 2},
    {"shard_gpus": 4, "context_parallel": 4, "ulysses": 2, "reshard_after_forward": False},
    {"shard_gpus": 2, "tensor_parallel": 2},
    {"shard_gpus": 1, "replicas": 2, "tensor_parallel": 2},
    {"shard_gpus": 2, "tensor_parallel": 2, "gradient_sync": "step"},
    {"shard_gpus": 2, "context_parallel": 2, "tensor_parallel": 2},
]


def name(layout: dict[str, Any]) -> str:
    return ",".join(f"{key}={value}" for key, value in layout.items())


def train_layouts(root: Path, steps: int) -> dict[str, Told]:
    """Every layout on the same four ranks, one after the other, two micro-batches a step."""
    runs = {
        name(layout): tiny_spec(
            steps=steps,
            layout=layout,
            recipe={"micro_batch_size": 4 // Layout(**NO_PARALLELISM | layout).data_parallel},
        )
        for layout in LAYOUTS
    }
    for key, spec in runs.items():
        write_container(root / key, spec)
    alone = tiny_spec(steps=steps)
    write_container(root / "alone", alone)
    (one,) = train_ranks(1, alone, root / "alone")

    def train_all(world: World) -> dict[str, Told]:
        return {key: train_rank(world, spec, root / key) for key, spec in runs.items()}

    # Some seconds for each layout and step, since gloo ranks share two cores here.
    told: dict[str, Told] = fork_ranks(4, train_all, timeout_seconds=90 + 30 * steps)[0]
    return told | {"alone": one}


@pytest.fixture(scope="module")
def four_steps(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    return train_layouts(tmp_path_factory.mktemp("four"), 4)


@pytest.mark.parametrize("layout", LAYOUTS, ids=name)
def test_every_layout_trains_as_one_process_does(
    layout: dict[str, Any], four_steps: dict[str, Told]
) -> None:
    """Validation between steps included."""
    told = four_steps[name(layout)]
    assert not told.events("layout_adapted")
    for key in ("loss", "gradient_norm", "validation_loss"):
        expected = four_steps["alone"].series(key)
        assert told.series(key) == pytest.approx(expected, abs=3e-6), key


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_layouts_do_not_drift_apart_over_20_steps(tmp_path: Path) -> None:
    told = train_layouts(tmp_path, 20)
    expected = told["alone"].series("loss")
    for layout in LAYOUTS:
        assert told[name(layout)].series("loss") == pytest.approx(expected, abs=1e-5), layout


def test_held_out_loss_does_not_depend_on_padding_or_ranks(tmp_path: Path) -> None:
    """Five held-out sequences over four ranks leave some ranks with padding only."""
    spec = tiny_spec(steps=1)
    root = write_container(tmp_path, spec)
    (one,) = train_ranks(1, spec, root)
    four = train_ranks(4, tiny_spec(steps=1, run_id="four"), write_container(tmp_path / "4", spec))
    assert four[0].series("validation_loss") == pytest.approx(one.series("validation_loss"))
    assert set(one.series("validation_loss")) == {0, 1}


def test_a_micro_batch_that_does_not_divide_is_lowered_and_told(
    alone: Told, tmp_path: Path
) -> None:
    spec = tiny_spec(recipe={"micro_batch_size": 3})
    told = train_ranks(2, spec, write_container(tmp_path, spec))
    (event,) = told[0].events("micro_batch_adapted")
    assert (event["wanted"], event["used"]) == (3, 2)
    assert told[0].series("loss") == pytest.approx(alone.series("loss"), abs=1e-6)


@pytest.mark.parametrize("ulysses", [1, 2])
def test_stretched_rotations_follow_the_tokens_that_ranks_share(
    ulysses: int, tmp_path: Path
) -> None:
    """Llama 3.1's: which positions a rank has decides how far its keys are turned."""
    scaling = RopeScaling(
        factor=8.0,
        low_freq_factor=1.0,
        high_freq_factor=4.0,
        original_max_position_embeddings=SEQUENCE_LENGTH // 4,
    )
    shape = tiny_shape(rope_scaling=scaling)
    plain = tiny_spec(steps=3)
    (unstretched,) = train_ranks(1, plain, write_container(tmp_path / "plain", plain))
    spec = tiny_spec(steps=3, shape=shape)
    (one,) = train_ranks(1, spec, write_container(tmp_path / "1", spec))
    shared = {"shard_gpus": 2, "context_parallel": 2, "ulysses": ulysses}
    spec = tiny_spec(steps=3, shape=shape, layout=shared)
    two = train_ranks(2, spec, write_container(tmp_path / "2", spec))
    assert two[0].series("loss") == pytest.approx(one.series("loss"), abs=1e-6)
    assert one.series("loss")[3] != pytest.approx(unstretched.series("loss")[3], abs=1e-4)


def test_tied_embeddings_train_under_sharding(tmp_path: Path) -> None:
    spec = tiny_spec(shape=tiny_shape(tie_word_embeddings=True))
    (one,) = train_ranks(1, spec, write_container(tmp_path / "1", spec))
    two = train_ranks(2, spec, write_container(tmp_path / "2", spec))
    assert two[0].series("loss") == pytest.approx(one.series("loss"), abs=1e-6)


def test_bf16_compute_keeps_fp32_masters_and_learns(tmp_path: Path) -> None:
    spec = tiny_spec(recipe={"precision": "bf16"})
    told = train_ranks(2, spec, write_container(tmp_path, spec))
    losses = told[0].series("loss")
    assert losses[6] < 0.9 * losses[1]

"""However many ranks share the work, the training is the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.distributed.forked import train_ranks
from tests.training_scripts.tiny import tiny_shape, tiny_spec, write_container


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[int, float]:
    spec = tiny_spec()
    root = write_container(tmp_path_factory.mktemp("alone"), spec)
    (told,) = train_ranks(1, spec, root)
    return told.series("loss")


def test_the_loss_falls_on_learnable_data(alone: dict[int, float]) -> None:
    assert list(alone) == [1, 2, 3, 4, 5, 6]
    assert alone[6] < 0.9 * alone[1]


@pytest.mark.parametrize("ranks", [2, 4])
def test_sharded_training_equals_one_process(
    ranks: int, alone: dict[int, float], tmp_path: Path
) -> None:
    spec = tiny_spec()
    told = train_ranks(ranks, spec, write_container(tmp_path, spec))
    assert told[0].series("loss") == pytest.approx(alone, abs=1e-6)
    assert all(not other.records for other in told[1:]), "only rank 0 speaks"


def test_replicas_of_shards_equal_one_process(alone: dict[int, float], tmp_path: Path) -> None:
    spec = tiny_spec(layout={"shard_gpus": 2, "replicas": 2})
    told = train_ranks(4, spec, write_container(tmp_path, spec))
    assert told[0].series("loss") == pytest.approx(alone, abs=1e-6)
    assert not told[0].events("layout_adapted")


def test_held_out_loss_does_not_depend_on_padding_or_ranks(tmp_path: Path) -> None:
    """Five held-out sequences over four ranks leave some ranks with padding only."""
    spec = tiny_spec(steps=1)
    root = write_container(tmp_path, spec)
    (one,) = train_ranks(1, spec, root)
    four = train_ranks(4, tiny_spec(steps=1, run_id="four"), write_container(tmp_path / "4", spec))
    assert four[0].series("validation_loss") == pytest.approx(one.series("validation_loss"))
    assert set(one.series("validation_loss")) == {0, 1}


def test_a_micro_batch_that_does_not_divide_is_lowered_and_told(
    alone: dict[int, float], tmp_path: Path
) -> None:
    spec = tiny_spec(recipe={"micro_batch_size": 3})
    told = train_ranks(2, spec, write_container(tmp_path, spec))
    (event,) = told[0].events("micro_batch_adapted")
    assert (event["wanted"], event["used"]) == (3, 2)
    assert told[0].series("loss") == pytest.approx(alone, abs=1e-6)


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

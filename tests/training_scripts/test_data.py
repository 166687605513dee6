"""Which sequence comes when, and what is said about a dataset that is not as it should be."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training_scripts.tiny import SEQUENCE_LENGTH, VOCABULARY, write_dataset
from trainer.data import (
    BatchPlan,
    SequenceReader,
    TrainingStream,
    find_shard_damage,
    open_manifest,
    shuffled,
    validation_batches,
)
from trainer.errors import TrainingError
from trainer.manifest import Manifest
from trainer.shuffle import permute


@given(n=st.integers(1, 3000), key=st.integers(0, 2**40))
def test_a_shuffle_visits_everything_once(n: int, key: int) -> None:
    order = permute(np.arange(n), n, key=key)
    assert sorted(order.tolist()) == list(range(n))


def test_shuffles_differ_by_seed_and_by_epoch() -> None:
    first, second = (
        shuffled(np.arange(epoch * 100, epoch * 100 + 100), sequences=100, seed=3)
        for epoch in (0, 1)
    )
    other = shuffled(np.arange(100), sequences=100, seed=4)
    assert len({tuple(first), tuple(second), tuple(other), tuple(range(100))}) == 4


@given(
    ranks=st.sampled_from([1, 2, 3, 4, 6, 12]),
    micro=st.integers(1, 15),
    consumed=st.integers(0, 10**12),
)
def test_any_number_of_ranks_reads_the_same_global_batch(
    ranks: int, micro: int, consumed: int
) -> None:
    plan = BatchPlan.make(global_sequences=12, micro_batch_size=micro, ranks=ranks)
    assert plan.micro_batch_size * plan.accumulation * ranks == 12
    assert plan.micro_batch_size <= micro
    read = [
        int(position)
        for rank in range(ranks)
        for batch in plan.positions(consumed=consumed, rank=rank)
        for position in batch
    ]
    assert sorted(read) == list(range(consumed, consumed + 12))


def test_a_batch_that_ranks_cannot_share_is_refused_with_a_way_out() -> None:
    with pytest.raises(ValueError, match="multiple of sequence_length x 5"):
        BatchPlan.make(global_sequences=12, micro_batch_size=4, ranks=5)


def reader(folder: Path, split: str = "train") -> SequenceReader:
    return SequenceReader(
        folder,
        Manifest.read(folder / "manifest.json"),
        split,
        sequence_length=SEQUENCE_LENGTH,
        vocab_size=VOCABULARY,
    )


def test_targets_are_the_next_tokens_across_all_shards(tmp_path: Path) -> None:
    write_dataset(tmp_path, sequences=10)
    sequences = reader(tmp_path)
    assert len(sequences) == 10
    raw = np.fromfile(tmp_path / "train-00001.bin", dtype="<u2")
    batch = sequences.batch(np.array([5, -1]))
    assert batch.tokens_BS[0].tolist() == raw[:SEQUENCE_LENGTH].tolist()
    assert batch.targets_BS[0].tolist() == raw[1 : SEQUENCE_LENGTH + 1].tolist()
    assert set(batch.targets_BS[1].tolist()) == {-100}


def test_a_stream_begins_anywhere_exactly(tmp_path: Path) -> None:
    write_dataset(tmp_path, sequences=10)
    plan = BatchPlan.make(global_sequences=4, micro_batch_size=2, ranks=1)

    def steps(consumed: int, count: int) -> list[list[list[int]]]:
        stream = TrainingStream(
            reader(tmp_path), plan, rank=0, seed=1, consumed=consumed, pin=False
        )
        try:
            return [
                [row for batch in stream.next_step() for row in batch.tokens_BS.tolist()]
                for _ in range(count)
            ]
        finally:
            stream.close()

    # Ten sequences in steps of four: the third step crosses into the second epoch.
    assert steps(0, 5)[2:] == steps(8, 3)


def test_a_token_outside_the_vocabulary_is_named_with_its_shard(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    shard = tmp_path / "train-00000.bin"
    shard.write_bytes(b"\xff\x00" * (shard.stat().st_size // 2))
    plan = BatchPlan.make(global_sequences=40, micro_batch_size=40, ranks=1)
    stream = TrainingStream(reader(tmp_path), plan, rank=0, seed=1, consumed=0, pin=False)
    with pytest.raises(TrainingError, match=r"train-00000\.bin holds token id 255.* is 64"):
        stream.next_step()
    stream.close()


def test_every_rank_gets_as_many_validation_batches(tmp_path: Path) -> None:
    write_dataset(tmp_path, held_out=5)
    held_out = reader(tmp_path, "validation")
    per_rank = [
        list(validation_batches(held_out, sequences=100, micro_batch_size=2, rank=rank, ranks=4))
        for rank in range(4)
    ]
    assert [len(batches) for batches in per_rank] == [1, 1, 1, 1]
    real = sum(int((b.targets_BS[:, 0] >= 0).sum()) for batches in per_rank for b in batches)
    assert real == 5


def damage(folder: Path) -> str | None:
    return find_shard_damage(folder, Manifest.read(folder / "manifest.json"))


def test_a_good_dataset_has_no_damage(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    assert damage(tmp_path) is None


def test_missing_truncated_and_corrupt_shards_are_named(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    shard = tmp_path / "train-00001.bin"
    content = shard.read_bytes()
    shard.write_bytes(content[:-2])
    assert "train-00001.bin is truncated" in str(damage(tmp_path))
    shard.write_bytes(b"\x05" + content[1:])
    assert "train-00001.bin is corrupt" in str(damage(tmp_path))
    shard.unlink()
    assert "train-00001.bin is missing" in str(damage(tmp_path))


def test_a_vocabulary_larger_than_the_models_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    with pytest.raises(TrainingError, match="64 tokens, but the model's vocab_size is 32") as error:
        open_manifest(tmp_path / "manifest.json", model_vocab_size=32)
    assert error.value.kind == "data"


def test_a_missing_manifest_says_how_to_make_one(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"prepare_data\.py"):
        open_manifest(tmp_path / "manifest.json", model_vocab_size=32)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "int8"}, "dtype is 'int8'; allowed are uint16, uint32"),
        ({"extra": 1}, "'extra'"),
        ({"schema_version": 2}, "schema_version 1"),
        ({"splits": {}}, "'train'"),
        ({"dtype": ["uint16"]}, "dtype is ['uint16']; allowed are"),
        ({"dtype": {}}, "dtype is {}; allowed are"),
        ({"splits": {"train": None}}, "splits.train must be a list of shards, got None"),
        ({"splits": {"train": [], "validation": 5}}, "splits.validation must be a list of shards"),
        (
            {"splits": {"train": [{"file": "\0", "tokens": 1, "sha256": ""}]}},
            "plain file name",
        ),
        (
            {"splits": {"train": [{"file": "../x", "tokens": 1, "sha256": ""}]}},
            "plain file name",
        ),
    ],
)
def test_a_wrong_manifest_is_refused_by_name(
    change: dict[str, object], message: str, tmp_path: Path
) -> None:
    write_dataset(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match=re.escape(message)):
        Manifest.read(path)


def test_a_manifest_nested_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "manifest.json"
    path.write_text("[" * 200_000)
    with pytest.raises(ValueError, match="nested too deep"):
        Manifest.read(path)


def test_a_manifest_reads_back_as_written(tmp_path: Path) -> None:
    written = write_dataset(tmp_path)
    assert Manifest.read(tmp_path / "manifest.json") == written

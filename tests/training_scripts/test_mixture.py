"""Several sources with weights: exact shares, one stream for any number of ranks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import prepare_data
from tests.training_scripts.tiny import SEQUENCE_LENGTH, VOCABULARY, write_dataset
from trainer.data import BatchPlan, SequenceReader, TrainingStream, find_shard_damage
from trainer.dataset import find_missing, find_shortage
from trainer.manifest import Manifest
from trainer.mixture import BLOCK, place, quotas

GLOBAL = 8


@given(
    weights=st.lists(st.floats(1, 100), min_size=1, max_size=6),
    seed=st.integers(0, 2**63 - 1),
    block=st.integers(0, 10**6),
)
@settings(max_examples=40, deadline=None)
def test_every_block_holds_each_source_by_its_share_and_none_twice(
    weights: list[float], seed: int, block: int
) -> None:
    counts = quotas(weights)
    assert counts.sum() == BLOCK
    assert np.abs(counts - np.array(weights) / sum(weights) * BLOCK).max() < 1
    sources, places = place(np.arange(BLOCK) + block * BLOCK, counts, seed=seed)
    for source, count in enumerate(counts):
        mine = sorted(places[sources == source].tolist())
        assert mine == list(range(block * count, (block + 1) * count))


def test_a_weight_too_small_for_any_place_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the weight 1 is less than 1/4096"):
        quotas([1_000_000, 1])


@pytest.fixture(scope="module")
def mixture(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mixture")
    write_dataset(folder / "web", sequences=40, held_out=5)
    write_dataset(folder / "code", sequences=12, held_out=3)
    assert prepare_data.main(["--output", str(folder), "--mix", "web=3", "code=1"]) == 0
    return folder


def reader(folder: Path, split: str = "train") -> SequenceReader:
    return SequenceReader(
        folder,
        Manifest.read(folder / "manifest.json"),
        split,
        sequence_length=SEQUENCE_LENGTH,
        vocab_size=VOCABULARY,
    )


def test_sequences_come_from_each_source_by_its_weight(mixture: Path) -> None:
    numbers = reader(mixture).at(np.arange(BLOCK), seed=3)
    assert int((numbers < 40).sum()) == BLOCK * 3 // 4
    # Each source is walked in epochs of its own: nothing twice before everything once.
    for low, high in ((0, 40), (40, 52)):
        mine = numbers[(numbers >= low) & (numbers < high)]
        assert sorted(mine[: high - low].tolist()) == list(range(low, high))


def read_steps(folder: Path, *, ranks: int, micro: int, step: int, steps: int) -> list[Any]:
    """The global batches of some steps as sorted rows of tokens and targets."""
    plan = BatchPlan.make(global_sequences=GLOBAL, micro_batch_size=micro, ranks=ranks)
    out: list[list[Any]] = [[] for _ in range(steps)]
    for rank in range(ranks):
        stream = TrainingStream(
            reader(folder), plan, rank=rank, seed=5, consumed=step * GLOBAL, pin=False
        )
        for rows in out:
            for batch in stream.next_step():
                rows += zip(batch.tokens_BS.tolist(), batch.targets_BS.tolist(), strict=True)
        stream.close()
    return [sorted(rows) for rows in out]


@given(
    first=st.sampled_from([1, 2, 4]),
    then=st.sampled_from([1, 2, 4, 8]),
    micro=st.integers(1, 4),
    stop=st.integers(0, 6),
)
@settings(max_examples=12, deadline=None)
def test_the_stream_is_the_same_for_any_ranks_and_after_a_resume_at_another_count(
    first: int, then: int, micro: int, stop: int, mixture: Path
) -> None:
    whole = read_steps(mixture, ranks=1, micro=8, step=0, steps=6)
    before = read_steps(mixture, ranks=first, micro=micro, step=0, steps=stop)
    after = read_steps(mixture, ranks=then, micro=1, step=stop, steps=6 - stop)
    assert before + after == whole


def test_held_out_sequences_are_of_all_sources(mixture: Path) -> None:
    held_out = reader(mixture, "validation")
    assert held_out.first(4).tolist() == [0, 1, 2, 5]
    assert len(held_out.first(100)) == 8


def test_damage_in_a_source_is_named_with_its_folder(mixture: Path) -> None:
    shard = mixture / "code/train-00001.bin"
    content = shard.read_bytes()
    try:
        shard.write_bytes(content[:-2])
        problem = find_shard_damage(mixture, Manifest.read(mixture / "manifest.json"))
        assert "code/train-00001.bin is truncated" in str(problem)
    finally:
        shard.write_bytes(content)


def test_a_source_that_has_not_been_imported_yet_is_waited_for(
    mixture: Path, tmp_path: Path
) -> None:
    (tmp_path / "manifest.json").write_bytes((mixture / "manifest.json").read_bytes())
    assert "web/manifest.json does not exist" in str(find_missing(tmp_path / "manifest.json"))
    assert find_missing(mixture / "manifest.json") is None


def test_a_source_changed_after_mixing_is_refused(tmp_path: Path) -> None:
    write_dataset(tmp_path / "web")
    assert prepare_data.main(["--output", str(tmp_path), "--mix", "web=1"]) == 0
    write_dataset(tmp_path / "web", sequences=20)
    with pytest.raises(ValueError, match="make the mixture again"):
        Manifest.read(tmp_path / "manifest.json")


def test_sources_of_different_tokenizers_are_refused(tmp_path: Path, capsys: Any) -> None:
    for name, digest in (("web", "0" * 64), ("code", "1" * 64)):
        write_dataset(tmp_path / name)
        path = tmp_path / name / "manifest.json"
        value = json.loads(path.read_text())
        value["tokenizer"]["sha256"] = digest
        path.write_text(json.dumps(value))
    assert prepare_data.main(["--output", str(tmp_path), "--mix", "web=1", "code=1"]) == 2
    assert "code and web were made with different tokenizers" in capsys.readouterr().err
    assert not (tmp_path / "manifest.json").exists()


def test_sources_whose_documents_end_in_different_tokens_are_refused(
    tmp_path: Path, capsys: Any
) -> None:
    for name in ("web", "code"):
        write_dataset(tmp_path / name, sequences=4, held_out=1)
    place = tmp_path / "code/manifest.json"
    value = json.loads(place.read_text())
    value["tokenizer"]["end_of_text_id"] = 7
    place.write_text(json.dumps(value))
    assert prepare_data.main(["--output", str(tmp_path), "--mix", "web=1", "code=1"]) == 2
    error = capsys.readouterr().err
    assert "documents end in token 7 in code and in 0 in web" in " ".join(error.split())
    assert not (tmp_path / "manifest.json").exists()


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (["web"], "NAME=WEIGHT is needed"),
        (["web=0"], "a weight above 0"),
        (["web=nan"], "a weight above 0"),
        (["web=1", "web=2"], "names a dataset twice"),
        (["books=1"], "books/manifest.json does not exist"),
        (["../web=1"], "must be a plain file name"),
    ],
)
def test_a_wrong_mixture_is_refused_in_one_line(
    weights: list[str], message: str, tmp_path: Path, capsys: Any
) -> None:
    write_dataset(tmp_path / "web")
    write_dataset(tmp_path / "mix/web")
    assert prepare_data.main(["--output", str(tmp_path / "mix"), "--mix", *weights]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "mix/manifest.json").exists()


def shortage(folder: Path, sequence_length: int) -> str | None:
    manifest = Manifest.read(folder / "manifest.json")
    train = SequenceReader(
        folder, manifest, "train", sequence_length=sequence_length, vocab_size=VOCABULARY
    )
    return find_shortage(manifest, train)


def test_too_few_tokens_and_too_short_shards_are_told_apart(tmp_path: Path, mixture: Path) -> None:
    write_dataset(tmp_path, sequences=40)
    assert shortage(tmp_path, 320) is None
    assert "the longest training shard holds 321 tokens" in str(shortage(tmp_path, 321))
    assert "--shard-tokens of 322 or more" in str(shortage(tmp_path, 321))
    assert "holds 642 tokens, less than one sequence of 642" in str(shortage(tmp_path, 642))
    assert "of the source code holds a whole sequence of 100" in str(shortage(mixture, 100))

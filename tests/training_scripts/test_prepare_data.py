"""Text in, shards out: equal every time, complete or absent, and clear about mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer

import prepare_data
from trainer.data import find_shard_damage
from trainer.manifest import Manifest

TEXTS = {
    f"module_{i}.py": f"def function_{i}(x):\n    return x + {i}  # naïve {'=' * (i % 7)}\n"
    for i in range(60)
}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    (folder / "package").mkdir(parents=True)
    for name, text in TEXTS.items():
        (folder / "package" / name).write_text(text)
    (folder / "notes.txt").write_text("not asked for")
    return folder


def prepare(sources: Path, output: Path, *more: str) -> int:
    return prepare_data.main(
        [
            *("--input", str(sources), "--include", "*.py", "--output", str(output)),
            *("--train-tokenizer", "--vocab-size", "300", "--validation-fraction", "0.2", *more),
        ]
    )


def read_tokens(folder: Path, split: str) -> list[int]:
    manifest = Manifest.read(folder / "manifest.json")
    return [
        int(token)
        for shard in manifest.splits[split]
        for token in np.fromfile(folder / shard.file, dtype="<u2")
    ]


def test_every_document_is_found_again_in_exactly_one_split(sources: Path, tmp_path: Path) -> None:
    assert prepare(sources, tmp_path / "out", "--shard-tokens", "100") == 0
    manifest = Manifest.read(tmp_path / "out/manifest.json")
    tokenizer = Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    end = manifest.tokenizer.end_of_text_id
    documents: dict[str, list[str]] = {}
    for split in ("train", "validation"):
        ids = read_tokens(tmp_path / "out", split)
        assert ids[-1] == end
        text = tokenizer.decode(ids, skip_special_tokens=False)
        documents[split] = text.split("<|endoftext|>")[:-1]
    assert sorted(documents["train"] + documents["validation"]) == sorted(TEXTS.values())
    assert 3 <= len(documents["validation"]) <= 25
    assert all(shard.tokens <= 100 for shard in manifest.splits["train"])
    assert len(manifest.splits["train"]) > 1
    assert find_shard_damage(tmp_path / "out", manifest) is None


def test_equal_input_gives_equal_files_with_any_number_of_workers(
    sources: Path, tmp_path: Path
) -> None:
    assert prepare(sources, tmp_path / "one") == 0
    assert prepare(sources, tmp_path / "two", "--workers", "2") == 0
    for file in sorted((tmp_path / "one").iterdir()):
        assert file.read_bytes() == (tmp_path / "two" / file.name).read_bytes(), file.name


def test_the_token_limit_counts_both_splits(sources: Path, tmp_path: Path) -> None:
    assert prepare(sources, tmp_path / "out", "--max-tokens", "150") == 0
    manifest = Manifest.read(tmp_path / "out/manifest.json")
    assert manifest.tokens("train") + manifest.tokens("validation") == 150


def test_an_existing_tokenizer_is_used_unchanged(sources: Path, tmp_path: Path) -> None:
    assert prepare(sources, tmp_path / "first") == 0
    tokenizer = tmp_path / "first" / "tokenizer.json"
    status = prepare_data.main(
        ["--input", str(sources), "--output", str(tmp_path / "b"), "--tokenizer", str(tokenizer)]
    )
    assert status == 0
    ours = Manifest.read(tmp_path / "b/manifest.json").tokenizer
    assert ours == Manifest.read(tmp_path / "first/manifest.json").tokenizer


def test_files_that_are_not_text_are_left_out_and_counted(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (sources / "binary.py").write_bytes(b"\xff\xfe\x00")
    (sources / "empty.py").write_text("")
    assert prepare(sources, tmp_path / "out") == 0
    assert "2 files left out" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--include", "*.rs"], "no file matches --include '*.rs'"),
        (["--input", "/nowhere/at/all"], "--input /nowhere/at/all does not exist"),
        (["--tokenizer", "x.json"], "either --tokenizer FILE or --train-tokenizer"),
        (["--vocab-size", "100"], "--vocab-size is 100; allowed are 257"),
        (["--validation-fraction", "1"], "--validation-fraction is 1.0; allowed are 0 to below 1"),
        (["--workers", "0"], "--workers is 0; 1 or more is needed"),
    ],
)
def test_mistakes_get_one_line_and_leave_nothing(
    more: list[str],
    message: str,
    sources: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert prepare(sources, tmp_path / "out", *more) == 2
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_filled_output_folder_is_never_touched(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("precious")
    assert prepare(sources, tmp_path / "out") == 2
    assert "is not empty" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_a_full_disk_is_said_in_one_line(
    sources: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def full(self: object, tokens: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(prepare_data.ShardWriter, "write", full)
    assert prepare(sources, tmp_path / "out") == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "out" / "manifest.json").exists()

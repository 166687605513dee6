"""Text in, shards out: equal every time, complete or absent, and clear about mistakes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer

import prepare_data
from preparation import documents, encoding
from preparation.errors import InputError
from preparation.shards import SplitWriter
from preparation.vocabulary import load_vocabulary
from trainer.data import find_shard_damage
from trainer.manifest import Manifest

TEXTS = {
    f"module_{i}.py": f"def function_{i}(x):\n    return x + {i}  # naïve {'=' * (i % 7)}\n"
    for i in range(60)
}


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "sources"
    folder.mkdir()
    write_sources(folder / "package")
    (folder / "notes.txt").write_text("not asked for")
    return folder


def write_sources(folder: Path) -> Path:
    folder.mkdir()
    for name, text in TEXTS.items():
        (folder / name).write_text(text)
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
    assert "2 documents left out" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--include", "*.rs"], "no file matches --include '*.rs'"),
        (["--input", "/nowhere/at/all"], "--input /nowhere/at/all does not exist"),
        (["--tokenizer", "x.json"], "either --tokenizer FILE or --train-tokenizer"),
        (["--vocab-size", "100"], "--vocab-size is 100; allowed are 257"),
        (["--validation-fraction", "1"], "--validation-fraction is 1.0; allowed are 0 to below 1"),
        (["--workers", "0"], "--workers is 0; 1 or more is needed"),
        (["--include", "/x"], "--include '/x' is no pattern of file names below a folder"),
        (["--include", "a**b"], "--include 'a**b' is no pattern of file names below a folder"),
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
    def full(self: object, tokens: object, mask: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(SplitWriter, "write", full)
    assert prepare(sources, tmp_path / "out") == 2
    assert "No space left on device" in capsys.readouterr().err
    assert not (tmp_path / "out" / "manifest.json").exists()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def write_jsonl(folder: Path, *, field: str = "text") -> None:
    folder.mkdir()
    rows = [json.dumps({"id": i, field: text}) for i, text in enumerate(TEXTS.values())]
    (folder / "part.jsonl").write_text("\n\n".join(rows))


@pytest.mark.parametrize("stretch", [1, 7, 64, 1000, 1 << 20])
def test_lines_are_read_once_wherever_a_stretch_ends(
    stretch: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_jsonl(tmp_path / "in")
    monkeypatch.setattr(documents, "STRETCH_BYTES", stretch)
    units = documents.find_units([tmp_path / "in/part.jsonl"], None)
    read = [text for unit in units for text in documents.read_documents(unit, "text")]
    assert read == list(TEXTS.values())


def test_text_json_lines_and_parquet_of_equal_documents_give_equal_shards(
    sources: Path, tmp_path: Path
) -> None:
    assert prepare(sources, tmp_path / "text", "--max-tokens", "100000") == 0
    tokenizer = str(tmp_path / "text/tokenizer.json")
    # Files are read in the order of their names.
    texts = [TEXTS[name] for name in sorted(TEXTS)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": t}) + "\n" for t in texts))
    table = pyarrow.table({"body": texts, "other": list(range(len(texts)))})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=7)
    for kind in ("jsonl", "parquet"):
        status = prepare_data.main(
            [
                *("--input", str(tmp_path / f"a.{kind}"), "--output", str(tmp_path / kind)),
                *("--tokenizer", tokenizer, "--field", "body", "--validation-fraction", "0.2"),
            ]
        )
        assert status == 0
        assert files_of(tmp_path / kind) == files_of(tmp_path / "text")


def interrupt_after(monkeypatch: pytest.MonkeyPatch, documents_written: int) -> None:
    real = SplitWriter.write
    count = 0

    def write(self: SplitWriter, tokens: Any, mask: Any) -> None:
        nonlocal count
        real(self, tokens, mask)
        count += 1
        if count == documents_written:
            raise KeyboardInterrupt

    monkeypatch.setattr(SplitWriter, "write", write)


@pytest.mark.parametrize("documents_written", [1, 5, 23, 59])
def test_an_interrupted_preparation_goes_on_and_ends_with_the_same_bytes(
    documents_written: int, sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prepare_data, "JOURNAL_SECONDS", 0.0)
    monkeypatch.setattr(documents, "FILES_PER_TASK", 4)
    size = ("--shard-tokens", "150")
    assert prepare(sources, tmp_path / "whole", *size) == 0
    with monkeypatch.context() as patched:
        interrupt_after(patched, documents_written)
        assert prepare(sources, tmp_path / "out", *size) == 130
    assert not (tmp_path / "out/manifest.json").exists()
    read: list[int] = []
    encode = encoding._Worker.__call__

    def count(self: encoding._Worker, task: Any) -> Any:
        read.append(len(task))
        return encode(self, task)

    with monkeypatch.context() as patched:
        patched.setattr(encoding._Worker, "__call__", count)
        assert prepare(sources, tmp_path / "out", *size) == 0
    assert sum(read) == 60 - (documents_written - 1) // 4 * 4
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_shards_damaged_in_between_are_made_again(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(prepare_data, "JOURNAL_SECONDS", 0.0)
    monkeypatch.setattr(documents, "FILES_PER_TASK", 4)
    size = ("--shard-tokens", "150")
    assert prepare(sources, tmp_path / "whole", *size) == 0
    with monkeypatch.context() as patched:
        interrupt_after(patched, 50)
        assert prepare(sources, tmp_path / "out", *size) == 130
    damaged = tmp_path / "out/train-00003.bin"
    content = damaged.read_bytes()
    damaged.write_bytes(bytes([content[0] ^ 255]) + content[1:])
    assert prepare(sources, tmp_path / "out", *size) == 0
    assert "damaged shards are made again" in " ".join(capsys.readouterr().err.split())
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_an_interrupted_folder_is_not_mixed_with_another_request(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(prepare_data, "JOURNAL_SECONDS", 0.0)
    monkeypatch.setattr(documents, "FILES_PER_TASK", 4)
    with monkeypatch.context() as patched:
        interrupt_after(patched, 20)
        assert prepare(sources, tmp_path / "out") == 130
    before = files_of(tmp_path / "out")
    assert prepare(sources, tmp_path / "out", "--shard-tokens", "77") == 2
    assert "of other input or with other options" in capsys.readouterr().err
    assert files_of(tmp_path / "out") == before


def with_tokenizer(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    value = json.loads((folder / "tokenizer.json").read_text())
    change(value)
    path = folder.parent / "changed.json"
    path.write_text(json.dumps(value))
    return path


def test_truncation_left_on_in_a_tokenizer_file_loses_no_text(
    sources: Path, tmp_path: Path
) -> None:
    assert prepare(sources, tmp_path / "first") == 0
    truncation = {"max_length": 3, "strategy": "LongestFirst", "stride": 0, "direction": "Right"}
    path = with_tokenizer(tmp_path / "first", lambda v: v.update(truncation=truncation))
    status = prepare_data.main(
        [
            *("--input", str(sources), "--include", "*.py", "--output", str(tmp_path / "b")),
            *("--tokenizer", str(path), "--validation-fraction", "0.2"),
        ]
    )
    assert status == 0
    assert read_tokens(tmp_path / "b", "train") == read_tokens(tmp_path / "first", "train")


def test_the_vocabulary_reaches_to_the_largest_id(sources: Path, tmp_path: Path) -> None:
    assert prepare(sources, tmp_path / "first") == 0

    def add(value: dict[str, Any]) -> None:
        value["added_tokens"].append(value["added_tokens"][0] | {"id": 900, "content": "<|x|>"})
        value["model"]["vocab"]["<|x|>"] = 900

    path = with_tokenizer(tmp_path / "first", add)
    assert load_vocabulary(path, end_of_text=None).size == 901
    assert load_vocabulary(path, end_of_text="<|x|>").end_of_text_id == 900
    with pytest.raises(InputError, match="lacks the token <nope>"):
        load_vocabulary(path, end_of_text="<nope>")


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_tokenizer_without_its_unknown_token_is_refused_in_one_line(
    workers: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = {"type": "WordLevel", "vocab": {"<|endoftext|>": 0}, "unk_token": "[UNK]"}
    tokenizer = tmp_path / "tokenizer.json"
    tokenizer.write_text(json.dumps({"version": "1.0", "added_tokens": [], "model": model}))
    (tmp_path / "a.txt").write_text("words that it does not know")
    status = prepare_data.main(
        [
            *("--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "out")),
            *("--tokenizer", str(tokenizer), "--workers", workers),
        ]
    )
    assert status == 2
    error = capsys.readouterr().err
    assert "the tokenizer cannot encode a document: WordLevel error" in error
    assert len(error.splitlines()) == 1


def test_text_that_quotes_the_end_of_text_does_not_end_there(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in/a.txt").write_text("before <|endoftext|> after")
    status = prepare_data.main(
        [
            *("--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")),
            *("--train-tokenizer", "--vocab-size", "257", "--validation-fraction", "0"),
        ]
    )
    assert status == 0
    end = Manifest.read(tmp_path / "out/manifest.json").tokenizer.end_of_text_id
    assert [i for i, t in enumerate(read_tokens(tmp_path / "out", "train")) if t == end] == [26]

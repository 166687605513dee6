"""Odd things given to prepare_data.py: named in a line, left out and counted, or read."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pyarrow
import pyarrow.parquet
import pytest
from tokenizers import Tokenizer

import prepare_data
from preparation import documents, encoding
from preparation.errors import InputError
from tests.training_scripts.chats import CONVERSATIONS, write_conversations, write_tokenizer
from tests.training_scripts.test_prepare_data import (
    TEXTS,
    files_of,
    prepare,
    read_tokens,
    write_sources,
)
from trainer.manifest import Manifest


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return write_sources(tmp_path / "sources")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ('{"text": "a"}\n{"text": \n', "line 2 is not JSON"),
        ('{"text": "a"}\n\n{"body": "b"}\n', "line 3 has no field 'text' (it has: body)"),
        ('{"text": ["a"]}\n', "x.jsonl: field 'text' holds list \"['a']\", not text"),
        ('{"text": "a"}\n' + "[" * 200_000 + "\n", "line 2 is not JSON"),
        ("3\n", "line 1 has no field 'text' (it has: no object)"),
    ],
)
def test_a_wrong_record_is_named(
    lines: str, message: str, sources: Path, tmp_path: Path, capsys: Any
) -> None:
    assert prepare(sources, tmp_path / "first") == 0
    capsys.readouterr()
    (tmp_path / "x.jsonl").write_text(lines)
    tokenizer = str(tmp_path / "first/tokenizer.json")
    arguments = ["--input", str(tmp_path / "x.jsonl"), "--tokenizer", tokenizer]
    assert prepare_data.main([*arguments, "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out/manifest.json").exists()


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"pip install 'cdk-blackwell\[data\]'"):
        documents.find_units([tmp_path / "a.parquet"], None)


def test_damaged_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match=r"a\.parquet cannot be read as Parquet"):
        documents.find_units([tmp_path / "a.parquet"], None)


def test_a_folder_is_not_taken_for_a_tokenizer(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--input", str(sources), "--output", str(tmp_path / "out")]
    assert prepare_data.main([*arguments, "--tokenizer", str(tmp_path)]) == 2
    assert "is a folder; give the tokenizer.json in it" in capsys.readouterr().err


def test_a_text_too_small_for_the_vocabulary_says_how_large_it_got(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("two words")
    arguments = ["--input", str(tmp_path / "a.txt"), "--output", str(tmp_path / "out")]
    assert prepare_data.main([*arguments, "--train-tokenizer", "--vocab-size", "5000"]) == 0
    size = Manifest.read(tmp_path / "out/manifest.json").tokenizer.vocab_size
    assert f"the text is enough for {size} tokens only" in capsys.readouterr().err
    assert 257 < size < 300


def test_a_very_long_text_is_encoded_in_pieces_and_stays_one_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(TEXTS.values())
    (tmp_path / "long").mkdir()
    (tmp_path / "long/a.py").write_text(text + "x" * 700)
    monkeypatch.setattr(encoding, "PIECE_CHARACTERS", 300)
    assert prepare(tmp_path / "long", tmp_path / "out", "--validation-fraction", "0") == 0
    tokens = read_tokens(tmp_path / "out", "train")
    end = Manifest.read(tmp_path / "out/manifest.json").tokenizer.end_of_text_id
    assert tokens.count(end) == 1
    tokenizer = Tokenizer.from_file(str(tmp_path / "out/tokenizer.json"))
    assert tokenizer.decode(tokens[:-1]) == text + "x" * 700


@pytest.mark.parametrize("text", ["", "a", "ab\n" * 5, "a" * 50, "a\n" + "b" * 25 + "\nc"])
def test_pieces_are_the_text_and_none_is_too_long(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encoding, "PIECE_CHARACTERS", 10)
    pieces = encoding.cut(text)
    assert "".join(pieces) == text
    assert max(map(len, pieces)) <= 10


def test_a_byte_order_mark_is_no_text(sources: Path, tmp_path: Path) -> None:
    assert prepare(sources, tmp_path / "plain") == 0
    for path in sources.iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert prepare(sources, tmp_path / "marked") == 0
    assert files_of(tmp_path / "marked") == files_of(tmp_path / "plain")


def test_a_column_that_is_not_utf_8_is_named_with_its_row_group(tmp_path: Path) -> None:
    column = pyarrow.array([b"\xff\xfe"]).view(pyarrow.string())
    pyarrow.parquet.write_table(pyarrow.table({"text": column}), tmp_path / "a.parquet")
    (unit,) = documents.find_units([tmp_path / "a.parquet"], None)
    with pytest.raises(InputError, match=r"a\.parquet, row group 0: column 'text' cannot be read"):
        list(documents.read_documents(unit, "text"))


def prepare_chat(folder: Path, *more: str) -> int:
    tokenizer = write_tokenizer(folder / "model")
    return prepare_data.main(
        [
            *("--input", str(folder / "chats.jsonl"), "--chat", "--tokenizer", str(tokenizer)),
            *("--output", str(folder / "out"), *more),
        ]
    )


@pytest.mark.parametrize(
    "template", ["{{ 1 // 0 }}", "{{ 'a'.index('z') }}", "{{ '{x}'.format(y=1) }}"]
)
def test_whatever_a_template_raises_is_a_line(
    template: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_conversations(tmp_path / "chats.jsonl", CONVERSATIONS)
    (tmp_path / "odd.jinja").write_text(template)
    assert prepare_chat(tmp_path, "--chat-template", str(tmp_path / "odd.jinja")) == 2
    assert "the chat template refuses a conversation: " in " ".join(capsys.readouterr().err.split())


def test_a_conversation_without_an_encoding_is_left_out_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    odd = [{"role": "user", "content": "\ud800"}, {"role": "assistant", "content": "x"}]
    write_conversations(tmp_path / "chats.jsonl", [*CONVERSATIONS, odd])
    assert prepare_chat(tmp_path) == 0
    assert "1 documents left out" in " ".join(capsys.readouterr().err.split())


def test_weights_beyond_numbers_are_refused(
    sources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a", "b"):
        assert prepare(sources, tmp_path / "mix" / name) == 0
    arguments = ["--output", str(tmp_path / "mix"), "--mix", "a=1e308", "b=1e308"]
    assert prepare_data.main(arguments) == 2
    assert "more than a number can hold" in capsys.readouterr().err
    assert not (tmp_path / "mix/manifest.json").exists()


PARENT = """
import multiprocessing, time
from preparation.encoding import _end_with_parent

if __name__ == "__main__":
    worker = multiprocessing.get_context("spawn").Process(target=_end_with_parent)
    worker.start()
    print(worker.pid, flush=True)
    time.sleep(600)
"""


def test_a_worker_does_not_outlive_a_parent_that_was_killed(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(PARENT)
    environment = {**os.environ, "PYTHONPATH": ":".join(part for part in sys.path if part)}
    command = [sys.executable, str(tmp_path / "parent.py")]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        worker = psutil.Process(int(parent.stdout.readline()))
        parent.send_signal(signal.SIGKILL)
    worker.wait(timeout=60)

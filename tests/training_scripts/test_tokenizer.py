"""The tokenizer is found wanting before the first step, not after the last."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.training_scripts.tiny import write_dataset
from trainer.manifest import Tokenizer
from trainer.tokenizer import find_tokenizer_damage, read_end_of_text

ADDED = [{"id": 3, "content": "<end>"}]


def written(folder: Path, content: Any) -> Path:
    path = folder / "tokenizer.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize(
    "content",
    [
        {"added_tokens": ADDED, "model": {"vocab": {"other": 3}}},
        {"added_tokens": [{"id": 1, "content": "x"}], "model": {"vocab": {"a": 0, "<end>": 3}}},
        {"added_tokens": [], "model": {"vocab": {"<end>": 3}}},
        {"model": {"vocab": {"<end>": 3}}},
        {"model": {"vocab": [["a", 0.0], ["b", 0.0], ["c", 0.0], ["<end>", -1.0]]}},
        {"added_tokens": ADDED},
    ],
    ids=["added", "other-added", "plain", "no-added", "unigram", "no-model"],
)
def test_the_end_of_text_is_found_wherever_it_stands(content: Any, tmp_path: Path) -> None:
    assert read_end_of_text(written(tmp_path, content), 3) == "<end>"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"added_tokens": ADDED, "model": {"vocab": {"a": 0}}}, "no token of id 7"),
        ({"model": {"vocab": [["a", 0.0]]}}, "no token of id 7"),
        ({}, "no token of id 7"),
        ([], "no token of id 7"),
        ("{", "is not JSON"),
    ],
)
def test_a_tokenizer_without_an_end_is_damage(content: Any, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, content)
    listed = Tokenizer(
        file=path.name,
        vocab_size=9,
        end_of_text_id=7,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
    )
    assert message in str(find_tokenizer_damage(tmp_path, listed))


def test_a_missing_or_changed_tokenizer_is_damage(tmp_path: Path) -> None:
    listed = write_dataset(tmp_path).tokenizer
    assert find_tokenizer_damage(tmp_path, listed) is None
    assert "no token of id 999" in str(
        find_tokenizer_damage(tmp_path, replace(listed, end_of_text_id=999))
    )
    path = tmp_path / listed.file
    path.write_text(path.read_text() + " ")
    assert "is not the one the manifest lists" in str(find_tokenizer_damage(tmp_path, listed))
    path.unlink()
    assert "tokenizer.json cannot be read (No such file" in str(
        find_tokenizer_damage(tmp_path, listed)
    )

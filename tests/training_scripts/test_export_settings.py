"""What lies beside exported weights: `transformers` knows how to ask, and where answers end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

import prepare_data
from tests.training_scripts.chats import (
    CONVERSATIONS,
    VOCABULARY,
    write_conversations,
    write_tokenizer,
)
from tests.training_scripts.test_prepare_data import prepare, write_sources
from tests.training_scripts.tiny import tiny_shape
from trainer.export import write_settings
from trainer.manifest import Manifest


def settings(dataset: Path, folder: Path) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """The tokenizer as transformers loads it, ``config.json`` and ``generation_config.json``."""
    folder.mkdir()
    write_settings(
        tiny_shape(vocab_size=VOCABULARY),
        folder=folder,
        dtype=torch.bfloat16,
        dataset=dataset,
        manifest=Manifest.read(dataset / "manifest.json"),
    )
    configs = (folder / name for name in ("config.json", "generation_config.json"))
    return AutoTokenizer.from_pretrained(folder), *(json.loads(c.read_text()) for c in configs)


def test_a_fine_tuned_model_brings_its_template_and_ends_at_its_own_token(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path / "model")
    write_conversations(tmp_path / "chats.jsonl", CONVERSATIONS)
    arguments = ["--input", str(tmp_path / "chats.jsonl"), "--chat", "--tokenizer", str(tokenizer)]
    assert prepare_data.main([*arguments, "--output", str(tmp_path / "data")]) == 0
    loaded, config, generation = settings(tmp_path / "data", tmp_path / "export")
    ids = {text: loaded.convert_tokens_to_ids(text) for text in ("<|im_end|>", "<|endoftext|>")}
    assert loaded.eos_token == "<|im_end|>"
    assert config["eos_token_id"] == ids["<|im_end|>"]
    assert generation["eos_token_id"] == [ids["<|im_end|>"], ids["<|endoftext|>"]]
    asked = loaded.apply_chat_template(
        [{"role": "user", "content": "3 + 4?"}], tokenize=False, add_generation_prompt=True
    )
    assert asked.endswith("<|im_start|>assistant\n")


def test_a_model_of_text_ends_where_documents_do(tmp_path: Path) -> None:
    assert prepare(write_sources(tmp_path / "sources"), tmp_path / "data") == 0
    loaded, config, generation = settings(tmp_path / "data", tmp_path / "export")
    end = loaded.convert_tokens_to_ids("<|endoftext|>")
    assert loaded.eos_token == "<|endoftext|>"
    assert (config["eos_token_id"], generation["eos_token_id"]) == (end, end)
    assert loaded.chat_template is None

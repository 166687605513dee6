"""The tokenizer of a dataset: given as a ``tokenizer.json``, or trained on the input."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from preparation.documents import Unit, read_documents
from preparation.errors import InputError

END_OF_TEXT: Final = "<|endoftext|>"
KNOWN_ENDS: Final = (END_OF_TEXT, "<|end_of_text|>", "<|eot_id|>", "</s>", "<eos>")
"""End of a document in the GPT, OLMo and Qwen, Llama 3, Llama 2 and Mistral, and Gemma families.

Looked for before the ``eos_token`` of ``tokenizer_config.json``, which in chat models ends a turn.
"""
SAMPLE_BYTES: Final = 4_000_000
"""Text a new tokenizer is trained on: enough for small vocabularies, seconds on one core."""


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """A tokenizer and what the shards depend on."""

    text: str
    """The whole ``tokenizer.json``, as given."""
    size: int
    """Largest token id plus one: ids may have gaps."""
    end_of_text_id: int

    def tokenizer(self) -> Tokenizer:
        """A tokenizer without truncation and padding, which a file may have left switched on."""
        tokenizer = Tokenizer.from_str(self.text)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer


def load_vocabulary(path: Path, *, end_of_text: str | None) -> Vocabulary:
    """Read a ``tokenizer.json`` and find the token that ends documents."""
    if path.is_dir():
        raise InputError(f"--tokenizer {path} is a folder; give the tokenizer.json in it")
    try:
        text = path.read_text(encoding="utf-8")
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # tokenizers raises bare Exception for everything
        raise InputError(f"--tokenizer {path} cannot be read: {error}") from error
    wanted = (end_of_text,) if end_of_text else (*KNOWN_ENDS, _configured_end(path))
    known = (token for token in wanted if token and tokenizer.token_to_id(token) is not None)
    token = next(known, None)
    if token is None:
        raise InputError(
            f"--tokenizer {path} lacks the token {wanted[0]}, which ends documents; name "
            "another one of its tokens by --end-of-text"
        )
    return _vocabulary(text, tokenizer, token)


def train_vocabulary(units: Sequence[Unit], *, field: str, size: int) -> Vocabulary:
    """A byte-level BPE, trained on an evenly spread sample of the units."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_sample(units, field), trainer=trainer)
    return _vocabulary(tokenizer.to_str(pretty=True), tokenizer, END_OF_TEXT)


def _sample(units: Sequence[Unit], field: str) -> Iterator[str]:
    stride = max(1, round(sum(unit.size for unit in units) / SAMPLE_BYTES))
    for unit in units[::stride]:
        for document in read_documents(unit, field):
            if isinstance(document, str):
                # A lone surrogate, which JSON can hold, is no text.
                yield document.encode("utf-8", "ignore").decode("utf-8")


def _vocabulary(text: str, tokenizer: Tokenizer, end_of_text: str) -> Vocabulary:
    ids: dict[str, int] = tokenizer.get_vocab(with_added_tokens=True)
    return Vocabulary(
        text=text,
        size=max(ids.values()) + 1,
        end_of_text_id=ids[end_of_text],
    )


def read_tokenizer_config(tokenizer: Path) -> dict[str, object]:
    """``tokenizer_config.json`` beside the tokenizer; empty when there is none."""
    path = tokenizer.with_name("tokenizer_config.json")
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}") from error
    if not isinstance(value, dict):
        raise InputError(f"{path} must hold one JSON object")
    return value


def token_text(value: object) -> str | None:
    """A special token of ``tokenizer_config.json``: text, or an object with ``content``."""
    text = value.get("content") if isinstance(value, dict) else value
    return text if isinstance(text, str) else None


def _configured_end(tokenizer: Path) -> str | None:
    return token_text(read_tokenizer_config(tokenizer).get("eos_token"))

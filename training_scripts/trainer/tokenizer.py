"""The dataset's ``tokenizer.json``: needed by the export, and so checked before the first step."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trainer.manifest import Tokenizer, file_sha256

TEMPLATE_FILE: Final = "chat_template.jinja"
TOKENIZER_CONFIG_FILE: Final = "tokenizer_config.json"
"""Where ``transformers`` looks for a chat template and for names of special tokens."""


def find_tokenizer_damage(folder: Path, tokenizer: Tokenizer) -> str | None:
    """Why the export could not use the file, or None."""
    path = folder / tokenizer.file
    try:
        digest = file_sha256(path)
    except OSError as error:
        return (
            f"tokenizer {path} cannot be read ({error.strerror}); copy it beside the manifest or "
            "prepare the dataset again"
        )
    if digest != tokenizer.sha256:
        return (
            f"tokenizer {path} is not the one the manifest lists: its SHA-256 is {digest}, not "
            f"{tokenizer.sha256}; use the file the shards were made with"
        )
    try:
        read_end_of_text(path, tokenizer.end_of_text_id)
    except ValueError as error:
        return str(error)
    return None


def read_end_of_text(path: Path, token_id: int) -> str:
    """The end-of-text token's text in a ``tokenizer.json``; ValueError when it has none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"tokenizer {path} is not JSON: {error}") from error
    text = _find_token(content, token_id) if isinstance(content, Mapping) else None
    if text is None:
        raise ValueError(
            f"tokenizer {path} has no token of id {token_id}, which the manifest names as "
            "end_of_text_id"
        )
    return text


def read_special_tokens(tokenizer: Path) -> dict[str, str]:
    """Name -> text, as a prepared chat has them beside its tokenizer; empty for anything else."""
    path = tokenizer.with_name(TOKENIZER_CONFIG_FILE)
    if not path.is_file():
        return {}
    content = json.loads(path.read_text(encoding="utf-8"))
    return {str(name): str(text) for name, text in content.items()}


def read_token_ids(path: Path) -> dict[str, int]:
    """Text -> id of every token in a ``tokenizer.json``."""
    content = json.loads(path.read_text(encoding="utf-8"))
    # Added tokens are walked first, and count before the model's own.
    return dict(reversed(list(_tokens(content))))


def _find_token(content: Mapping[str, Any], token_id: int) -> str | None:
    return next((text for text, number in _tokens(content) if number == token_id), None)


def _tokens(content: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """Text and id: of the added tokens, then of the model's plain vocabulary."""
    for token in content.get("added_tokens") or ():
        yield str(token.get("content")), token.get("id")
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocabulary, Mapping):
        yield from ((str(text), number) for text, number in vocabulary.items())
    elif isinstance(vocabulary, list):
        # Unigram models list [text, score] by id.
        for number, row in enumerate(vocabulary):
            yield str(row[0]), number

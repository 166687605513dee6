"""The dataset's ``tokenizer.json``: needed by the export, and so checked before the first step."""

from __future__ import annotations

import json
from collections.abc import Mapping
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


def read_token_id(path: Path, text: str) -> int | None:
    """Id of a token's text in a ``tokenizer.json``; None when it has none."""
    content = json.loads(path.read_text(encoding="utf-8"))
    for token in content.get("added_tokens") or ():
        if token.get("content") == text:
            return int(token["id"])
    vocabulary = content["model"].get("vocab")
    if isinstance(vocabulary, Mapping):
        found = vocabulary.get(text)
        return None if found is None else int(found)
    return next((number for number, row in enumerate(vocabulary or ()) if row[0] == text), None)


def _find_token(content: Mapping[str, Any], token_id: int) -> str | None:
    """Among the added tokens, else in the model's plain vocabulary."""
    for token in content.get("added_tokens") or ():
        if token.get("id") == token_id:
            return str(token["content"])
    model = content.get("model")
    vocabulary = model.get("vocab") if isinstance(model, Mapping) else None
    if isinstance(vocabulary, Mapping):
        return next((str(text) for text, number in vocabulary.items() if number == token_id), None)
    # Unigram models list [text, score] by id.
    if isinstance(vocabulary, list) and 0 <= token_id < len(vocabulary):
        return str(vocabulary[token_id][0])
    return None

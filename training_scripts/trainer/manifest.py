"""The dataset manifest: ``manifest.json`` beside the token shards it lists.

Written last by ``prepare_data.py``, so a dataset without one is not complete. Read strictly.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

from cdk_blackwell.planning.contracts import DATASET_MANIFEST_FILE, SCHEMA_VERSION
from cdk_blackwell.planning.run_spec import read_dataclass

Dtype = Literal["uint16", "uint32"]
ITEM_BYTES: Final[dict[Dtype, int]] = {"uint16": 2, "uint32": 4}
SPLIT_TRAIN: Final = "train"
SPLIT_VALIDATION: Final = "validation"


class IncompleteManifestError(ValueError):
    """The file is not there, or not as a whole; it may still come."""


@dataclass(frozen=True, kw_only=True)
class Tokenizer:
    """The tokenizer that made the shards."""

    file: str
    vocab_size: int
    end_of_text_id: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Shard:
    """One file of little-endian token ids, without a header."""

    file: str
    tokens: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A whole dataset."""

    dtype: Dtype
    tokenizer: Tokenizer
    splits: dict[str, tuple[Shard, ...]]

    def tokens(self, split: str) -> int:
        """Tokens in a split."""
        return sum(shard.tokens for shard in self.splits.get(split, ()))

    def to_json(self) -> str:
        """The file's text."""
        value = {"schema_version": SCHEMA_VERSION, **asdict(self)}
        return json.dumps(value, indent=2, sort_keys=True) + "\n"

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` whole or not at all."""
        draft = folder / f".{DATASET_MANIFEST_FILE}.tmp"
        with draft.open("w") as sink:
            sink.write(self.to_json())
            sink.flush()
            os.fsync(sink.fileno())
        draft.replace(folder / DATASET_MANIFEST_FILE)

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read strictly; ValueError names the path and what is wrong.

        Its subclass IncompleteManifestError says that the file may still be on its way.
        """
        try:
            value = json.loads(path.read_text())
        except FileNotFoundError:
            raise IncompleteManifestError(
                f"{path} does not exist: the dataset is missing or still incomplete; "
                "make it with prepare_data.py, which writes the manifest last"
            ) from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise IncompleteManifestError(f"{path} cannot be read: {error}") from error
        return cls.from_dict(value, str(path))

    @classmethod
    def from_dict(cls, value: Any, where: str) -> Manifest:
        """Check keys, types and names."""
        if not isinstance(value, Mapping) or value.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(
                f"{where} is not a dataset manifest of schema_version {SCHEMA_VERSION}"
            )
        allowed = {"schema_version", "dtype", "tokenizer", "splits"}
        if set(value) != allowed:
            odd = sorted(set(value) ^ allowed)
            raise ValueError(
                f"{where} must have exactly {', '.join(sorted(allowed))}; see {odd[0]!r}"
            )
        dtype = value["dtype"]
        if dtype not in ITEM_BYTES:
            raise ValueError(f"{where}: dtype is {dtype!r}; allowed are {', '.join(ITEM_BYTES)}")
        splits = value["splits"]
        if not isinstance(splits, Mapping) or SPLIT_TRAIN not in splits:
            raise ValueError(f"{where}: splits must be an object with at least {SPLIT_TRAIN!r}")
        tokenizer = read_dataclass(Tokenizer, value["tokenizer"], f"{where}: tokenizer")
        return cls(
            dtype=dtype,
            tokenizer=tokenizer,
            splits={
                name: tuple(_read_shard(item, f"{where}: splits.{name}") for item in shards)
                for name, shards in splits.items()
            },
        )


def _read_shard(value: Any, where: str) -> Shard:
    shard: Shard = read_dataclass(Shard, value, where)
    if Path(shard.file).name != shard.file:
        raise ValueError(f"{where}: {shard.file!r} must be a plain file name beside the manifest")
    return shard


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def find_damage(folder: Path, shard: Shard, *, dtype: Dtype, checksum: bool = True) -> str | None:
    """What is wrong with a shard's file, or None."""
    path = folder / shard.file
    expected = shard.tokens * ITEM_BYTES[dtype]
    try:
        size = path.stat().st_size
    except FileNotFoundError:
        return f"dataset shard {path} is missing; the manifest lists it with {shard.tokens} tokens"
    if size != expected:
        word = "truncated" if size < expected else "too long"
        return f"dataset shard {path} is {word}: {size} bytes, the manifest says {expected}"
    if checksum and file_sha256(path) != shard.sha256:
        return f"dataset shard {path} is corrupt: its SHA-256 differs from the manifest's"
    return None

"""The dataset manifest: ``manifest.json`` beside the token shards it lists.

Written last by ``prepare_data.py``, so a dataset without one is not complete. Read strictly.
A mixture's manifest lists datasets in folders beside it, each with its weight, instead of shards.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from cdk_blackwell.planning.contracts import DATASET_MANIFEST_FILE, SCHEMA_VERSION
from cdk_blackwell.planning.strict_json import read_dataclass

Dtype = Literal["uint16", "uint32"]
ITEM_BYTES: Final[dict[Dtype, int]] = {"uint16": 2, "uint32": 4}
SHARD_SUFFIX: Final = ".bin"
MASK_SUFFIX: Final = ".mask"
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
    mask_sha256: str | None = None
    """Of the loss mask beside it, for fine-tuning: one byte a token, 1 where it counts in the loss.
    None where all tokens count."""

    @property
    def mask_file(self) -> str:
        """The loss mask's name."""
        return str(Path(self.file).with_suffix(MASK_SUFFIX))


@dataclass(frozen=True, kw_only=True)
class Source:
    """One dataset of a mixture."""

    folder: str
    """Beside the mixture's manifest."""
    weight: float
    """Share of the training tokens, relative to the other sources' weights."""
    manifest_sha256: str
    """Of the source's own manifest, so that a source cannot change unnoticed."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """A whole dataset. In a mixture, shards of all sources, each with its folder in its name."""

    dtype: Dtype
    tokenizer: Tokenizer
    splits: dict[str, tuple[Shard, ...]]
    sources: tuple[Source, ...] = ()
    """Empty unless it is a mixture."""

    def tokens(self, split: str) -> int:
        """Tokens in a split."""
        return sum(shard.tokens for shard in self.splits.get(split, ()))

    @property
    def content_sha256(self) -> str:
        """SHA-256 (hex) of its content: equal ones give the same sequences in the same order."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """The file's text."""
        return _file_text(
            {
                "dtype": self.dtype,
                "tokenizer": asdict(self.tokenizer),
                "splits": {
                    split: [_without_none(asdict(shard)) for shard in shards]
                    for split, shards in self.splits.items()
                },
            }
        )

    def write(self, folder: Path) -> None:
        """Write ``manifest.json`` whole or not at all."""
        write_whole(folder / DATASET_MANIFEST_FILE, self.to_json())

    @classmethod
    def read(cls, path: Path) -> Manifest:
        """Read strictly; ValueError names the path and what is wrong.

        Its subclass IncompleteManifestError says that the file may still be on its way.
        """
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise IncompleteManifestError(
                f"{path} does not exist: the dataset is missing or still incomplete; "
                "make it with prepare_data.py, which writes the manifest last"
            ) from None
        except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
            raise IncompleteManifestError(f"{path} cannot be read: {error}") from error
        except RecursionError as error:
            raise ValueError(f"{path} is no dataset manifest: it is nested too deep") from error
        if isinstance(value, Mapping) and "mixture" in value:
            return _read_mixture(value, path)
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
        if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
            raise ValueError(f"{where}: dtype is {dtype!r}; allowed are {', '.join(ITEM_BYTES)}")
        splits = value["splits"]
        if not isinstance(splits, Mapping) or SPLIT_TRAIN not in splits:
            raise ValueError(f"{where}: splits must be an object with at least {SPLIT_TRAIN!r}")
        for name, shards in splits.items():
            if not isinstance(shards, list):
                raise ValueError(f"{where}: splits.{name} must be a list of shards, got {shards!r}")
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
    optional = {"mask_sha256": None}
    given = optional | dict(value) if isinstance(value, Mapping) else value
    shard: Shard = read_dataclass(Shard, given, where)
    _check_name(shard.file, where)
    return shard


def _check_name(name: str, where: str) -> None:
    if Path(name).name != name or "\0" in name:
        raise ValueError(f"{where}: {name!r} must be a plain file name beside the manifest")


def _without_none(value: dict[str, Any]) -> dict[str, Any]:
    return {key: item for key, item in value.items() if item is not None}


def mixture_text(sources: Sequence[Source]) -> str:
    """The text of a mixture's manifest."""
    return _file_text({"mixture": [asdict(source) for source in sources]})


def _file_text(value: dict[str, Any]) -> str:
    value = {"schema_version": SCHEMA_VERSION, **value}
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _read_mixture(value: Mapping[str, Any], path: Path) -> Manifest:
    if value.get("schema_version") != SCHEMA_VERSION or set(value) != {"schema_version", "mixture"}:
        raise ValueError(
            f"{path} is not a mixture of schema_version {SCHEMA_VERSION} with the one key 'mixture'"
        )
    rows = value["mixture"]
    if not isinstance(rows, list) or not rows:
        raise ValueError(f"{path}: mixture must be a list of at least one source")
    sources: list[Source] = [read_dataclass(Source, row, f"{path}: mixture") for row in rows]
    parts = [_read_source(source, path) for source in sources]
    first = parts[0]
    for source, part in zip(sources, parts, strict=True):
        if part.tokenizer.sha256 != first.tokenizer.sha256:
            raise ValueError(
                f"{path}: {source.folder} and {sources[0].folder} were made with different "
                "tokenizers; prepare all sources with the same --tokenizer"
            )
        if part.tokenizer.end_of_text_id != first.tokenizer.end_of_text_id:
            raise ValueError(
                f"{path}: documents end in token {part.tokenizer.end_of_text_id} in "
                f"{source.folder} and in {first.tokenizer.end_of_text_id} in {sources[0].folder}; "
                "prepare all sources with the same --end-of-text"
            )
    return Manifest(
        dtype=first.dtype,
        tokenizer=replace(first.tokenizer, file=f"{sources[0].folder}/{first.tokenizer.file}"),
        splits={
            split: tuple(
                replace(shard, file=f"{source.folder}/{shard.file}")
                for source, part in zip(sources, parts, strict=True)
                for shard in part.splits.get(split, ())
            )
            for split in sorted({split for part in parts for split in part.splits})
        },
        sources=tuple(sources),
    )


def _read_source(source: Source, path: Path) -> Manifest:
    _check_name(source.folder, f"{path}: mixture")
    if not 0 < source.weight < math.inf:
        raise ValueError(
            f"{path}: the weight of {source.folder} is {source.weight}; it must be above 0"
        )
    place = path.parent / source.folder / DATASET_MANIFEST_FILE
    part = Manifest.read(place)
    if part.sources:
        raise ValueError(f"{place} is a mixture itself; list its sources instead")
    if file_sha256(place) != source.manifest_sha256:
        raise ValueError(
            f"{place} is not the one that {path} was made from: make the mixture again with "
            "prepare_data.py --mix"
        )
    return part


def write_whole(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    draft = path.with_name(f".{path.name}.tmp")
    with draft.open("w", encoding="utf-8") as sink:
        sink.write(text)
        sink.flush()
        os.fsync(sink.fileno())
    draft.replace(path)


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()


def find_damage(folder: Path, shard: Shard, *, dtype: Dtype, checksum: bool = True) -> str | None:
    """What is wrong with a shard's file, or None."""
    problem = _find_file_damage(
        folder / shard.file,
        size=shard.tokens * ITEM_BYTES[dtype],
        digest=shard.sha256 if checksum else None,
    )
    if problem or shard.mask_sha256 is None:
        return problem
    return _find_file_damage(
        folder / shard.mask_file,
        size=shard.tokens,
        digest=shard.mask_sha256 if checksum else None,
    )


def _find_file_damage(path: Path, *, size: int, digest: str | None) -> str | None:
    try:
        found = path.stat().st_size
        if found == size and digest and file_sha256(path) != digest:
            return f"dataset shard {path} is corrupt: its SHA-256 differs from the manifest's"
    except FileNotFoundError:
        return f"dataset shard {path} is missing; the manifest lists it with {size} bytes"
    except OSError as error:
        return f"dataset shard {path} cannot be read: {error.strerror}"
    if found != size:
        word = "truncated" if found < size else "too long"
        return f"dataset shard {path} is {word}: {found} bytes, the manifest says {size}"
    return None

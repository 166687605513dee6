"""Shards on disk: written as ``NAME.part``, named when they are whole and on the disk."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import numpy as np
from numpy.typing import NDArray

from trainer.manifest import MASK_SUFFIX, SHARD_SUFFIX, Dtype, Shard

PART_SUFFIX: Final = ".part"


def part_of(path: Path) -> Path:
    """Where a file is while it is being written."""
    return path.with_name(path.name + PART_SUFFIX)


def remove_shards(folder: Path) -> None:
    """Delete all shards, finished or not."""
    for path in folder.iterdir():
        if path.suffix in (SHARD_SUFFIX, MASK_SUFFIX, PART_SUFFIX):
            path.unlink()


class GrowingFile:
    """A file that is appended to, with the checksum of what it holds."""

    def __init__(self, path: Path, *, keep: int = 0) -> None:
        """Open ``path`` with its first ``keep`` bytes."""
        self.path = path
        self._part = part_of(path)
        if keep and not self._part.exists():
            path.replace(self._part)
        self._sink: IO[bytes] = self._part.open("r+b" if keep else "wb")
        self._hash = hashlib.sha256()
        if keep:
            self._sink.truncate(keep)
            while piece := self._sink.read(1 << 20):
                self._hash.update(piece)

    def write(self, data: bytes) -> None:
        """Append."""
        self._sink.write(data)
        self._hash.update(data)

    def secure(self) -> str:
        """Bring everything to the disk; returns the SHA-256 of the whole."""
        self._sink.flush()
        os.fsync(self._sink.fileno())
        return self._hash.hexdigest()

    def close(self) -> None:
        """Leave the unfinished file."""
        self._sink.close()

    def finish(self) -> str:
        """Make it whole: on the disk, under its name."""
        digest = self.secure()
        self._sink.close()
        self._part.replace(self.path)
        return digest


@dataclass(kw_only=True)
class SplitWriter:
    """Writes one split as a row of shards of equal size."""

    folder: Path
    split: str
    dtype: Dtype
    shard_tokens: int
    masked: bool
    """Whether every shard has a file of loss masks, a byte a token."""
    shards: list[Shard] = field(default_factory=list)
    """Finished ones."""
    unfinished: Shard | None = None
    """What is on the disk of the unfinished one."""
    _files: list[GrowingFile] = field(default_factory=list)
    _tokens: int = 0

    def __post_init__(self) -> None:
        if self.unfinished:
            itemsize = np.dtype(self.dtype).itemsize
            self._tokens = self.unfinished.tokens
            self._open(keep=(self._tokens * itemsize, self._tokens))

    def write(self, tokens: NDArray[np.uint32], mask: NDArray[np.uint8] | None) -> None:
        """Append one document."""
        columns = [tokens.astype(np.dtype(self.dtype).newbyteorder("<"))]
        if self.masked:
            assert mask is not None
            columns.append(mask)
        start = 0
        while start < len(tokens):
            if not self._files:
                self._tokens = 0
                self._open(keep=(0, 0))
            end = min(len(tokens), start + self.shard_tokens - self._tokens)
            for file, column in zip(self._files, columns, strict=True):
                file.write(column[start:end].tobytes())
            self._tokens += end - start
            start = end
            if self._tokens == self.shard_tokens:
                self.finish()

    def _open(self, *, keep: tuple[int, int]) -> None:
        suffixes = (SHARD_SUFFIX, MASK_SUFFIX) if self.masked else (SHARD_SUFFIX,)
        self._files = [
            GrowingFile(self.folder / f"{self._stem}{suffix}", keep=size)
            for suffix, size in zip(suffixes, keep, strict=False)
        ]

    @property
    def _stem(self) -> str:
        return f"{self.split}-{len(self.shards):05d}"

    def _shard(self, digests: list[str]) -> Shard:
        return Shard(
            file=f"{self._stem}{SHARD_SUFFIX}",
            tokens=self._tokens,
            sha256=digests[0],
            mask_sha256=digests[1] if self.masked else None,
        )

    def secure(self) -> None:
        """Bring the open shard to the disk, and say in ``unfinished`` how far it is."""
        digests = [file.secure() for file in self._files]
        self.unfinished = self._shard(digests) if digests else None

    def finish(self) -> None:
        """End the open shard, if there is one."""
        if self._files:
            shard = self._shard([file.finish() for file in self._files])
            self.shards.append(shard)
            self._files, self.unfinished = [], None

    def close(self) -> None:
        """Leave an unfinished shard as it is."""
        for file in self._files:
            file.close()

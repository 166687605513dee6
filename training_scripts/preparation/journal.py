"""How far a preparation is, so that an interrupted one goes on where it was.

One line a few seconds: the finished shards, and how far the open ones are, with checksums. The last
line whose shards all have the checksums it says is where the work goes on. What lies beyond is
written again.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from preparation.errors import InputError
from preparation.shards import part_of, remove_shards
from trainer.manifest import ITEM_BYTES, Dtype, Shard

JOURNAL_FILE: Final = ".preparing.jsonl"


@dataclass(frozen=True, kw_only=True)
class Position:
    """How far the preparation is."""

    tasks: int = 0
    tokens: int = 0
    skipped: int = 0
    size: int = 0
    """Bytes of input."""
    finished: Mapping[str, tuple[Shard, ...]] = field(default_factory=dict)
    """By split."""
    unfinished: Mapping[str, Shard | None] = field(default_factory=dict)
    """By split: the beginning of a shard."""


class Journal:
    """The file of positions; one process at a time holds it."""

    def __init__(self, folder: Path, *, request: str, dtype: Dtype) -> None:
        """Open or create it. ``request`` is a digest of all that decides what shards hold.

        InputError when another process holds it, or it belongs to another request.
        """
        self._folder = folder
        self._item_bytes = ITEM_BYTES[dtype]
        self._sound: dict[tuple[Path, int, str], bool] = {}
        self._path = folder / JOURNAL_FILE
        self._sink = self._path.open("a+b")
        try:
            fcntl.flock(self._sink, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._sink.close()
            raise InputError(f"another prepare_data.py is writing to {folder}") from None
        lines = list(_whole_lines(self._path))
        if len(lines) == 1:
            # Nothing was kept: what is there may come from a mistake that has been corrected.
            lines = []
            remove_shards(folder)
        if lines and lines[0][0] != {"request": request}:
            self._sink.close()
            raise InputError(
                f"--output {folder} holds an interrupted preparation of other input or with other "
                "options; repeat its command to go on, or give a new or empty folder"
            )
        positions = list(_positions([value for value, _ in lines[1:]]))
        sound = [0, *(n for n, one in enumerate(positions, start=1) if self._is_sound(one))][-1]
        self.position = positions[sound - 1] if sound else Position()
        self.lost = sound < len(positions)
        """Whether shards had been damaged, so that their tokens are made again."""
        self._written = self.position
        self._sink.truncate(lines[sound][1] if lines else 0)
        if not lines:
            self._append({"request": request})

    def record(self, position: Position) -> None:
        """Note a position whose shards are on the disk."""
        line = asdict(position)
        line["finished"] = {
            split: [asdict(s) for s in row[len(self._written.finished.get(split, ())) :]]
            for split, row in position.finished.items()
        }
        self._append(line)
        self._written = position

    def close(self) -> None:
        """Let another process go on."""
        self._sink.close()

    def remove(self) -> None:
        """The preparation is complete."""
        self._path.unlink()

    def _append(self, value: dict[str, Any]) -> None:
        self._sink.write(json.dumps(value).encode() + b"\n")
        self._sink.flush()
        os.fsync(self._sink.fileno())

    def _is_sound(self, position: Position) -> bool:
        finished = (shard for row in position.finished.values() for shard in row)
        unfinished = (shard for shard in position.unfinished.values() if shard)
        return all(map(self._holds, finished)) and all(
            self._holds(shard, part=True) for shard in unfinished
        )

    def _holds(self, shard: Shard, *, part: bool = False) -> bool:
        """Whether the files begin with the shard's tokens (and masks)."""
        wanted = [(shard.file, self._item_bytes, shard.sha256)]
        if shard.mask_sha256:
            wanted.append((shard.mask_file, 1, shard.mask_sha256))
        return all(
            self._begins_with(self._folder / name, shard.tokens * item_bytes, digest, part=part)
            for name, item_bytes, digest in wanted
        )

    def _begins_with(self, path: Path, size: int, digest: str, *, part: bool) -> bool:
        if part and part_of(path).exists():
            path = part_of(path)
        key = (path, size, digest)
        if key not in self._sound:
            self._sound[key] = _sha256_of_start(path, size) == digest
        return self._sound[key]


def _sha256_of_start(path: Path, size: int) -> str | None:
    """SHA-256 of a file's first bytes; None when it is shorter, missing or unreadable."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as source:
            while size and (piece := source.read(min(size, 1 << 20))):
                digest.update(piece)
                size -= len(piece)
    except OSError:
        return None
    return None if size else digest.hexdigest()


def _whole_lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Each line and where it ends, up to the first that was not written as a whole."""
    end = 0
    for line in path.read_bytes().splitlines(keepends=True):
        try:
            value = json.loads(line)
        except ValueError:
            return
        if not line.endswith(b"\n"):
            return
        end += len(line)
        yield value, end


def _positions(lines: list[dict[str, Any]]) -> Iterator[Position]:
    """Each line's position: it lists only the shards finished since the line before."""
    finished: dict[str, tuple[Shard, ...]] = {}
    for line in lines:
        for split, row in line["finished"].items():
            finished[split] = (*finished.get(split, ()), *(Shard(**shard) for shard in row))
        unfinished = {
            split: Shard(**shard) if shard else None for split, shard in line["unfinished"].items()
        }
        yield Position(**(line | {"finished": dict(finished), "unfinished": unfinished}))

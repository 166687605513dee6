"""``COMPLETE.json``: when a checkpoint counts. Written last; without it a folder is ignored."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from cdk_blackwell.planning.contracts import COMPLETE_FILE, SCHEMA_VERSION, parse_step_folder
from cdk_blackwell.planning.run_spec import read_dataclass
from trainer.manifest import file_sha256


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """One file of a checkpoint."""

    bytes: int
    sha256: str

    @classmethod
    def of(cls, path: Path) -> FileRecord:
        """Measure a file."""
        return cls(bytes=path.stat().st_size, sha256=file_sha256(path))


@dataclass(frozen=True, kw_only=True)
class Completion:
    """What ``COMPLETE.json`` says."""

    schema_version: int
    run_id: str
    step: int
    tokens: int
    """Tokens trained on."""
    ranks: int
    recipe_sha256: str
    """Hash of model, recipe, data and length: what a resumed run must share."""
    files: dict[str, FileRecord]

    def write(self, folder: Path) -> None:
        """Write the marker whole or not at all."""
        draft = folder / f".{COMPLETE_FILE}.tmp"
        with draft.open("w") as sink:
            sink.write(json.dumps(asdict(self), indent=2, sort_keys=True) + "\n")
            sink.flush()
            os.fsync(sink.fileno())
        draft.replace(folder / COMPLETE_FILE)

    @classmethod
    def read(cls, folder: Path) -> Completion:
        """Read the marker; ValueError when it is damaged, FileNotFoundError when there is none."""
        text = (folder / COMPLETE_FILE).read_text()
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{COMPLETE_FILE} is not JSON: {error}") from error
        if not isinstance(value, Mapping) or value.get("schema_version") != SCHEMA_VERSION:
            raise ValueError(f"{COMPLETE_FILE} is not of schema_version {SCHEMA_VERSION}")
        completion: Completion = read_dataclass(cls, value, COMPLETE_FILE)
        files = {
            name: read_dataclass(FileRecord, record, f"{COMPLETE_FILE}: {name}")
            for name, record in completion.files.items()
        }
        return cls(**{**vars(completion), "files": files})


def find_checkpoint_damage(
    folder: Path, completion: Completion, *, part: int = 0, parts: int = 1
) -> str | None:
    """Check all sizes and this rank's part of the checksums; the first problem or None."""
    for number, (name, record) in enumerate(sorted(completion.files.items())):
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if path.stat().st_size != record.bytes:
            return f"{name} has {path.stat().st_size} bytes instead of {record.bytes}"
        if number % parts == part and file_sha256(path) != record.sha256:
            return f"{name} does not match its SHA-256"
    return None


def step_folders(root: Path) -> list[Path]:
    """All checkpoint folders, newest first."""
    if not root.is_dir():
        return []
    found = [path for path in root.iterdir() if parse_step_folder(path.name) is not None]
    return sorted(found, key=lambda path: path.name, reverse=True)


def prunable(folders: Iterable[Path], *, keep: int) -> list[Path]:
    """Complete folders beyond the newest ``keep`` (at least one), and incomplete older ones.

    ``folders`` come newest first. Anything newer than the newest complete folder stays: it may be
    in the middle of being written.
    """
    complete_seen = 0
    out = []
    for folder in folders:
        if (folder / COMPLETE_FILE).exists():
            complete_seen += 1
            if complete_seen > max(1, keep):
                out.append(folder)
        elif complete_seen:
            out.append(folder)
    return out


def remove_folder(folder: Path) -> None:
    """Remove a checkpoint, its marker first, so that a half-removed one never counts."""
    (folder / COMPLETE_FILE).unlink(missing_ok=True)
    shutil.rmtree(folder)

"""What a run writes about itself: ``progress.json`` and a checkpoint's ``COMPLETE.json``.

The trainer writes them; the controller, the command line and a later attempt read them, maybe with
another version of this library. So reading asks for every known key and leaves others alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from cdk_blackwell.planning.contracts import COMPLETE_FILE, PROGRESS_FILE, SCHEMA_VERSION
from cdk_blackwell.planning.json_text import parse_json
from cdk_blackwell.planning.strict_json import read_dataclass


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a run is; ``progress.json`` in the run's prefix."""

    schema_version: int = SCHEMA_VERSION
    attempt: int
    step: int
    """Optimizer steps done."""
    tokens: int
    """Tokens trained on."""
    loss: float | None
    """Mean training loss of the last log interval; None before the first."""
    validation_loss: float | None
    last_complete_step: int
    """Step of the newest complete checkpoint, 0 before the first."""
    time: str
    """When it was written: ISO 8601, UTC."""
    stepped_at: str | None = None
    """When the last optimizer step of this attempt ended; None before the first."""
    checkpointed_at: str | None = None
    """When this attempt completed its newest checkpoint; None before the first."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Newest numbers of the metrics table by key."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_dict(cls, value: Any) -> Progress:
        """ValueError names a missing key, a wrong type or another schema version."""
        # What earlier versions did not write, so that an upgrade never blinds the controller to
        # the progress of a run that goes on.
        later: dict[str, Any] = {"stepped_at": None, "checkpointed_at": None, "metrics": {}}
        known = {**later, **_of_this_version(value, PROGRESS_FILE)}
        progress: Progress = _read_known(cls, known, PROGRESS_FILE)
        return progress

    @classmethod
    def from_json(cls, text: str | bytes) -> Progress:
        """Parse the file; ValueError when it is not one."""
        return cls.from_dict(parse_json(text, what=PROGRESS_FILE))


@dataclass(frozen=True, kw_only=True)
class FileRecord:
    """One file of a checkpoint."""

    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class CompleteMarker:
    """What makes a checkpoint count; ``COMPLETE.json``, written last."""

    schema_version: int = SCHEMA_VERSION
    run_id: str
    step: int
    tokens: int
    """Tokens trained on."""
    ranks: int
    recipe_sha256: str
    """Hash of model, recipe, names of the data, and length: what a resumed run must share."""
    files: dict[str, FileRecord]
    """File name -> what it must be; markers of a running upload are no part of a checkpoint."""
    micro_batch_size: int | None = None
    """Sequences per data-parallel rank and forward pass that the batch had grown to."""
    dataset_sha256: str | None = None
    """Hash of the dataset's manifest; None where it was written before this was noted."""
    recent_losses: tuple[float, ...] = ()
    """What the next losses are held against, in nats, oldest first."""

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return asdict(self)

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True) + "\n"

    @classmethod
    def from_dict(cls, value: Any) -> CompleteMarker:
        """ValueError names a missing key, a wrong type or another schema version."""
        optional = {"micro_batch_size": None, "dataset_sha256": None, "recent_losses": ()}
        known = {**optional, **_of_this_version(value, COMPLETE_FILE)}
        marker = _read_known(cls, known, COMPLETE_FILE)
        files = {
            name: _read_known(FileRecord, record, f"{COMPLETE_FILE}: {name}")
            for name, record in marker.files.items()
        }
        return cls(**{**vars(marker), "files": files})

    @classmethod
    def from_json(cls, text: str | bytes) -> CompleteMarker:
        """Parse the file; ValueError when it is not one."""
        return cls.from_dict(parse_json(text, what=COMPLETE_FILE))


def utc_timestamp() -> str:
    """Now, as ``Progress.time`` has it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _of_this_version(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or value.get("schema_version") != SCHEMA_VERSION:
        raise ValueError(f"{where} is not an object of schema_version {SCHEMA_VERSION}")
    return value


def _read_known(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be an object, got {value!r}")
    known = {field.name for field in fields(kind)}
    return read_dataclass(kind, {key: value[key] for key in value if key in known}, where)

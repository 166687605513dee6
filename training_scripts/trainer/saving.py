"""Writing checkpoints behind the training: copied at once, written by a thread, complete or not.

The copy to host memory is all that training waits for. A thread then writes the shards, checks and
lists them, and puts ``COMPLETE.json`` last, by a group of ranks of its own: its messages never mix
with those of the training. Every rank learns the same outcome, so that all draw the same conclusion
from a full disk.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.state_dict_saver import save

from cdk_blackwell.planning.contracts import FailureClass
from cdk_blackwell.planning.records import CompleteMarker, FileRecord
from trainer.completeness import clear_folder, measure, write_marker, writing_rank
from trainer.errors import TrainingError, classify, describe
from trainer.parallel import World

WRITE_TIMEOUT: Final = timedelta(hours=6)
"""A slow file system may need over an hour for a large model's shards."""

State = Mapping[str, Any]
Value = TypeVar("Value")


class SaveError(TrainingError):
    """A checkpoint could not be written; all ranks know, and the older ones are untouched."""


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint that is complete."""

    marker: CompleteMarker
    seconds: float
    """From the beginning of the copy to the marker."""
    blocked_seconds: float
    """For which training stood still."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """What one rank met."""

    kind: FailureClass
    message: str

    @classmethod
    def of(cls, error: BaseException) -> Trouble:
        """In the words of the failure file."""
        return cls(kind=classify(error), message=describe(error))


class Writer:
    """Writes one checkpoint at a time; all ranks make one and use it in step."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._group = dist.new_group(backend="gloo", timeout=WRITE_TIMEOUT)
        self._stager = DefaultStager(
            StagingOptions(
                use_pinned_memory=world.has_gpu,
                use_shared_memory=False,
                use_async_staging=False,
                use_non_blocking_copy=world.has_gpu,
            )
        )
        self._thread: threading.Thread | None = None
        self._began = self._blocked = 0.0
        self._saved: Saved | None = None
        self._error: BaseException | None = None

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is under way or its outcome has not been collected."""
        return self._thread is not None

    @property
    def done(self) -> bool:
        """Whether this rank's part of it has ended, well or not."""
        return self._thread is None or not self._thread.is_alive()

    def begin(
        self,
        state: State,
        folder: Path,
        marker: Callable[[dict[str, FileRecord]], CompleteMarker],
        *,
        finish: Callable[[], None],
    ) -> None:
        """Copy ``state`` and write it from now on; ``finish`` is rank 0's, after the marker."""
        if self.busy:
            raise RuntimeError("a checkpoint is still being written")
        self._began = time.monotonic()
        staged = self._stager.stage(dict(state))
        self._blocked = time.monotonic() - self._began
        self._saved = self._error = None
        # A daemon: when the time to stop is over, an unfinished checkpoint holds nobody back.
        self._thread = threading.Thread(
            target=self._run, args=(staged, folder, marker, finish), name="checkpoint", daemon=True
        )
        self._thread.start()

    def wait(self, seconds: float | None = None) -> bool:
        """Wait for this rank's part; whether it has ended."""
        if self._thread is not None:
            self._thread.join(seconds)
        return self.done

    def collect(self) -> Saved:
        """The outcome of what is done; `SaveError` when it failed and all ranks know it."""
        if self._thread is None or not self.done:
            raise RuntimeError("no checkpoint is done")
        self._thread = None
        if self._error is not None:
            raise self._error
        if self._saved is None:
            raise RuntimeError("the checkpoint's thread ended without an outcome")
        return self._saved

    def _run(
        self,
        staged: Any,
        folder: Path,
        marker: Callable[[dict[str, FileRecord]], CompleteMarker],
        finish: Callable[[], None],
    ) -> None:
        try:
            self._world.use_device()
            value = self._write(staged, folder, marker)
            if self._world.is_first:
                finish()
            self._saved = Saved(
                marker=value,
                seconds=time.monotonic() - self._began,
                blocked_seconds=self._blocked,
            )
        except BaseException as error:  # collected by the training thread, which raises it
            self._error = error

    def _write(
        self,
        staged: Any,
        folder: Path,
        marker: Callable[[dict[str, FileRecord]], CompleteMarker],
    ) -> CompleteMarker:
        self._first_only(lambda: _prepare(folder))
        records: dict[str, FileRecord] = {}
        trouble: Trouble | None = None
        try:
            save(staged, checkpoint_id=folder, process_group=self._group)
            mine = [p for p in folder.iterdir() if writing_rank(p.name) == self._world.rank]
            records = {path.name: measure(path) for path in mine}
        except (OSError, CheckpointException) as error:
            trouble = Trouble.of(error)
        parts = self._gather((trouble, records))
        self._raise_first([found for found, _ in parts])
        value = marker({name: record for _, part in parts for name, record in part.items()})
        self._first_only(lambda: write_marker(folder, value))
        return value

    def _first_only(self, work: Callable[[], None]) -> None:
        """Rank 0 does it; all ranks raise what it met."""
        trouble: Trouble | None = None
        if self._world.is_first:
            try:
                work()
            except OSError as error:
                trouble = Trouble.of(error)
        self._raise_first(self._gather(trouble))

    def _gather(self, value: Value) -> list[Value]:
        values: list[Value] = [value] * self._world.size
        dist.all_gather_object(values, value, group=self._group)
        return values

    @staticmethod
    def _raise_first(troubles: list[Trouble | None]) -> None:
        found = next((trouble for trouble in troubles if trouble is not None), None)
        if found is not None:
            raise SaveError(found.kind, found.message)


def _prepare(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    clear_folder(folder)

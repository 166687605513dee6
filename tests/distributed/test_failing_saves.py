"""Saving fails in the thread behind the training: at any moment, on one rank or on all.

Training goes on, all ranks say the same, what was half made goes, the last good checkpoint stays,
and only failures in a row end the run.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.checkpoint.filesystem import FileSystem

from tests.distributed.forked import Told, fork_ranks, train_rank, train_ranks
from tests.training_scripts.tiny import tiny_spec, write_container
from trainer import completeness, saving, stopping
from trainer.parallel import World
from trainer.saving import Writer

SPEC = tiny_spec(steps=6, checkpoint={"interval_seconds": 1e-6, "keep": 2})
FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/checkpoints/x")
DENIED = PermissionError(errno.EACCES, os.strerror(errno.EACCES), "/checkpoints/x")
READ_ONLY = OSError(errno.EROFS, os.strerror(errno.EROFS), "/checkpoints/x")


@pytest.fixture(autouse=True)
def _one_save_every_second_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Saves end before the next step does, whatever the machine: at steps 1, 3, 5 and the last."""
    begin = Writer.begin

    def begin_and_wait(self: Writer, *given: Any, **named: Any) -> None:
        begin(self, *given, **named)
        self.wait()

    monkeypatch.setattr(Writer, "begin", begin_and_wait)


class Plant:
    """Lets a function fail on one rank at the saves of some steps."""

    def __init__(self, patch: pytest.MonkeyPatch, *, rank: int, folders: set[str]) -> None:
        self._patch, self._rank, self._folders = patch, rank, folders

    def into(self, owner: Any, name: str, error: OSError, *, place: int = 0) -> None:
        """``place``: of the argument that is a path in a checkpoint's folder."""
        work = getattr(owner, name)

        def planted(*given: Any, **named: Any) -> Any:
            if self._hits(Path(given[place])):
                raise error
            return work(*given, **named)

        self._patch.setattr(owner, name, planted)

    def after_bytes(self, count: int, error: OSError) -> None:
        """In the middle of a file of shards, as a disk does that fills up."""
        create = FileSystem.create_stream

        @contextmanager
        def planted(files: FileSystem, path: Path, mode: str) -> Iterator[io.IOBase]:
            with create(files, path, mode) as stream:
                yield Filling(stream, count, error) if self._hits(Path(path)) else stream

        self._patch.setattr(FileSystem, "create_stream", planted)

    def _hits(self, path: Path) -> bool:
        return dist.get_rank() == self._rank and bool(self._folders.intersection(path.parts))


class Filling(io.IOBase):
    """A file whose disk is full after some bytes."""

    def __init__(self, stream: Any, left: int, error: OSError) -> None:
        self._stream, self._left, self._error = stream, left, error

    def write(self, data: Any) -> int:
        """Less and less room."""
        if self._left < len(data):
            raise self._error
        self._left -= len(data)
        return int(self._stream.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def tell(self) -> int:
        """Not that of ``io.IOBase``."""
        return int(self._stream.tell())

    def flush(self) -> None:
        """Likewise."""
        self._stream.flush()

    def fileno(self) -> int:
        """Likewise."""
        return int(self._stream.fileno())


MOMENTS: dict[int, tuple[int, Callable[[Plant], None], str]] = {
    3: (0, lambda p: p.into(saving, "_prepare", DENIED), "Permission denied"),
    7: (1, lambda p: p.after_bytes(0, READ_ONLY), "Read-only file system"),
    11: (1, lambda p: p.after_bytes(20_000, FULL), "no space is left"),
    15: (0, lambda p: p.into(FileSystem, "rename", FULL, place=1), "no space is left"),
    19: (1, lambda p: p.into(saving, "measure", DENIED), "Permission denied"),
    23: (0, lambda p: p.into(saving, "write_marker", FULL), "no space is left"),
}
"""Step of the save -> rank, moment (in order, folder to marker), words of the event's reason."""


def steps_kept(root: Path) -> list[int]:
    return sorted(int(path.name[5:]) for path in (root / "checkpoints").glob("step-*"))


def test_a_failed_save_costs_one_interval_and_leaves_nothing_whenever_it_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step, (rank, plant, _) in MOMENTS.items():
        plant(Plant(monkeypatch, rank=rank, folders={f"step-{step:010d}"}))
    spec = tiny_spec(steps=40, checkpoint={"interval_seconds": 1e-6, "keep": 2})
    root = write_container(tmp_path, spec)
    told = train_ranks(2, spec, root, sigterm_at={0: 24})[0]
    failed = told.events("checkpoint_failed")
    assert [event["step"] for event in failed] == list(MOMENTS)
    for event, (_, _, words) in zip(failed, MOMENTS.values(), strict=True):
        assert words in event["reason"]
        assert (event["failures"], event["last_complete_step"]) == (1, event["step"] - 2)
    saved = [event["step"] for event in told.events("checkpoint")]
    assert saved == [1, 5, 9, 13, 17, 21, 24]
    assert told.stopped
    # The half-made folder is gone, the good one is there, and the stop's own save went well.
    assert steps_kept(root) == [21, 24]


def test_all_failures_in_a_row_end_the_run_with_the_last_good_checkpoint_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = {f"step-{step:010d}" for step in range(3, 20)}
    plant = Plant(monkeypatch, rank=1, folders=later)
    plant.after_bytes(20_000, FULL)
    spec = tiny_spec(steps=20, checkpoint={"interval_seconds": 1e-6, "keep": 2})
    root = write_container(tmp_path, spec)
    with pytest.raises(AssertionError) as ended:
        train_ranks(2, spec, root)
    text = str(ended.value)
    assert "TrainingError: 3 checkpoints in a row could not be written, and all work" in text
    assert "since step 1 is at risk: no space is left on the disk" in text
    assert steps_kept(root) == [1]


def test_a_full_disk_at_the_very_end_is_tried_again_after_room_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Older checkpoints take the room that the last one needs."""

    def full_while_older_ones_are_kept(folder: Path, marker: Any) -> None:
        if folder.name == "step-0000000006" and len(list(folder.parent.glob("step-*"))) > 2:
            raise FULL
        completeness.write_marker(folder, marker)

    monkeypatch.setattr(saving, "write_marker", full_while_older_ones_are_kept)
    root = write_container(tmp_path, SPEC)
    told = train_ranks(2, SPEC, root)[0]
    assert [event["step"] for event in told.events("checkpoint_failed")] == [6]
    assert (told.step, told.stopped) == (6, False)
    assert steps_kept(root) == [5, 6]


def test_what_cannot_be_listed_or_removed_is_told_and_outlived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pruning runs on rank 0 alone: an error there must not end one rank of two."""
    Plant(monkeypatch, rank=0, folders={"step-0000000001"}).into(
        completeness, "is_uploading", DENIED
    )
    root = write_container(tmp_path, SPEC)
    told = train_ranks(2, SPEC, root)[0]
    assert told.step == 6
    assert {event["folder"] for event in told.events("checkpoint_not_removed")} == {"checkpoints"}
    assert steps_kept(root) == [1, 3, 5, 6]


def test_room_is_never_made_at_the_cost_of_the_checkpoint_that_was_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newer one that was skipped for its damage is marked complete, but no checkpoint."""
    spec = tiny_spec(steps=12, checkpoint={"interval_seconds": 1e-6, "keep": 1})
    root = write_container(tmp_path, spec)
    train_ranks(2, spec, root, sigterm_at={0: 1})
    good = root / "checkpoints" / "step-0000000001"
    damaged = root / "checkpoints" / "step-0000000009"
    shutil.copytree(good, damaged)
    (damaged / "__0_0.distcp").write_bytes(b"damage")
    later = {f"step-{step:010d}" for step in range(2, 7)}
    Plant(monkeypatch, rank=1, folders=later).after_bytes(20_000, FULL)
    with pytest.raises(AssertionError, match="all work since step 1 is at risk"):
        train_ranks(2, spec, root)
    assert steps_kept(root) == [1, 9]
    monkeypatch.undo()
    # And a good save beside the damaged one does not go for it either.
    train_ranks(2, spec, root, sigterm_at={0: 3})
    assert steps_kept(root) == [3, 9]


def test_a_save_that_outlasts_the_grace_is_abandoned_and_never_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One rank's storage hangs: nobody waits for it beyond the grace."""
    monkeypatch.undo()
    monkeypatch.setattr(stopping, "GRACE_SECONDS", 1.0)
    measure, forever = completeness.measure, threading.Event()

    def hanging(path: Path) -> Any:
        if dist.get_rank() == 1 and path.parent.name == "step-0000000004":
            forever.wait()
        return measure(path)

    monkeypatch.setattr(saving, "measure", hanging)
    spec = tiny_spec(steps=50, checkpoint={"interval_seconds": 3600})
    root = write_container(tmp_path, spec)
    told = train_ranks(2, spec, root, sigterm_at={1: 4})[0]
    assert told.stopped
    assert told.events("checkpoint_abandoned")[0]["last_complete_step"] == 0
    assert told.events("stopped")[0]["last_complete_step"] == 0
    assert steps_kept(root) == [4]
    assert not (root / "checkpoints" / "step-0000000004" / "COMPLETE.json").exists()


# --- Before anything is trained ------------------------------------------------------------------


def refused(root: Path) -> str:
    def attempt(world: World) -> str:
        try:
            train_rank(world, SPEC, root)
        except Exception as error:
            return f"{getattr(error, 'kind', '')}: {error}"
        return "trained"

    first, second = fork_ranks(2, attempt)
    assert first == second, "all ranks say the same"
    return str(first)


def test_a_folder_that_cannot_be_written_is_refused_before_training(tmp_path: Path) -> None:
    root = write_container(tmp_path, SPEC)
    (root / "checkpoints").write_text("a file in its place")
    words = refused(root)
    assert words.startswith(f"user: checkpoints cannot be written to {root / 'checkpoints'} (")
    assert "nothing was trained" in words


def test_one_rank_that_cannot_write_stops_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = Path.write_bytes

    def read_only_on_one(self: Path, data: bytes) -> int:
        if self.name == ".probe-1":
            raise READ_ONLY
        return write(self, data)

    monkeypatch.setattr(Path, "write_bytes", read_only_on_one)
    words = refused(write_container(tmp_path, SPEC))
    assert words.startswith("user: ")
    assert "(Read-only file system); nothing was trained" in words


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))


def test_a_disk_too_small_for_one_checkpoint_is_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room(monkeypatch)
    words = refused(write_container(tmp_path, SPEC))
    assert words.startswith("user: the disk of ")
    assert "has 0.0 GiB free and a checkpoint of this model takes" in words


def test_a_run_that_goes_on_is_only_warned_of_too_little_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = write_container(tmp_path, SPEC)
    older = root / "checkpoints" / "step-0000000001"
    older.mkdir(parents=True)
    (older / "COMPLETE.json").touch()
    no_room(monkeypatch)
    told: Told = train_ranks(2, SPEC, root)[0]
    assert len(told.events("checkpoint_room")) == 1
    assert told.step == 6

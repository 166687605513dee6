"""Distributed checkpoints: saved by all ranks, complete or ignored, checked before loading."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.utils._pytree import tree_map_only

from cdk_blackwell.planning.contracts import step_folder
from cdk_blackwell.planning.records import CompleteMarker
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.completeness import (
    METADATA_FILE,
    find_checkpoint_damage,
    is_marked,
    prunable,
    read_marker,
    remove_folder,
    step_folders,
)
from trainer.errors import TrainingError, user_error
from trainer.parallel import World
from trainer.precision import unwrapped
from trainer.saving import Saved, SaveError, Writer
from trainer.signals import agree

Warn = Callable[..., None]
"""Prints an event: ``warn("checkpoint_skipped", folder=..., reason=...)``."""


def recipe_sha256(spec: RunSpec) -> str:
    """Hash of what decides the result: model, recipe, data and length, but not the layout."""
    parts = {
        "model": asdict(spec.model),
        "recipe": asdict(spec.recipe),
        "data": asdict(spec.data),
        "train_tokens": spec.train_tokens,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


FAILED_SAVES: Final = 3
"""So many saves in a row may fail before the run does: each puts one more interval's work at risk.
"""
SAFETY: Final = 1.25
"""A save is expected to take so much longer than the last one: storage is shared."""


class Checkpointer:
    """Saves and loads model, optimizer and position below one folder.

    All ranks call `begin`, `settle` and `load_newest` in step.
    """

    def __init__(
        self, root: Path, spec: RunSpec, world: World, *, dataset_sha256: str, warn: Warn
    ) -> None:
        self.root = root
        self.last_complete_step = 0
        """Newest step on disk that is known to be complete; 0 before the first."""
        self.failures = 0
        """Saves that failed since the last one that did not."""
        self.latest: Saved | None = None
        """The newest save of this attempt."""
        self._spec, self._world, self._warn = spec, world, warn
        self._recipe_sha256 = recipe_sha256(spec)
        self._dataset_sha256 = dataset_sha256
        self._saved_at = time.monotonic()
        self._writer = Writer(world)
        self._step = 0
        self._damaged: set[str] = set()
        """Folders that were skipped when the run was resumed, and not written again since."""

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._writer.busy

    @property
    def done(self) -> bool:
        """Whether this rank's part of writing it has ended, so that `settle` needs no waiting."""
        return self._writer.busy and self._writer.done

    @property
    def predicted_seconds(self) -> float:
        """How long the next save will take, by the last one; 0 before the first."""
        return SAFETY * self.latest.seconds if self.latest else 0.0

    def interval_passed(self) -> bool:
        """Whether it is time to save, by this rank's clock; rank 0's is the one that counts.

        Never while a checkpoint is still being written: one at a time.
        """
        passed = time.monotonic() - self._saved_at >= self._spec.checkpoint.interval_seconds
        return passed and not self.busy

    def begin(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        step: int,
        tokens: int,
        micro_batch_size: int | None = None,
        recent_losses: tuple[float, ...] = (),
    ) -> None:
        """Copy everything; it is written while training goes on, until `settle`."""
        marker = partial(
            CompleteMarker,
            run_id=self._spec.run_id,
            step=step,
            tokens=tokens,
            ranks=self._world.size,
            recipe_sha256=self._recipe_sha256,
            micro_batch_size=micro_batch_size,
            dataset_sha256=self._dataset_sha256,
            recent_losses=recent_losses,
        )
        self._damaged.discard(step_folder(step))
        self._step = step
        self._saved_at = time.monotonic()
        self._writer.begin(
            _state(model, optimizer),
            self.root / step_folder(step),
            lambda files: marker(files=files),
            finish=self._prune,
        )

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until all ranks have written theirs; False, on all, when the time is over first."""
        unfinished = not self._writer.wait(seconds)
        return not any(agree(self._world.maximum, unfinished))

    def settle(self) -> Saved | None:
        """Take note of a save that is done on all ranks; None when it failed.

        A failed save is told of and tried again after the next interval, because the newest
        complete checkpoint is untouched; after `FAILED_SAVES` in a row it ends the run.
        """
        try:
            self.latest = self._writer.collect()
        except SaveError as error:
            self.failures += 1
            self._warn(
                "checkpoint_failed",
                step=self._step,
                reason=str(error),
                failures=self.failures,
                last_complete_step=self.last_complete_step,
            )
            if self._world.is_first:
                self._make_room()
            if self.failures >= FAILED_SAVES:
                raise TrainingError(
                    error.kind,
                    f"{self.failures} checkpoints in a row could not be written, and all work "
                    f"since step {self.last_complete_step} is at risk: {error}",
                ) from error
            return None
        self.failures = 0
        self.last_complete_step = self._step
        return self.latest

    def _prune(self) -> None:
        """Once a checkpoint is complete: keep so many as the run asks for."""
        self._remove(keep=self._spec.checkpoint.keep, newest_good=self._step)

    def _make_room(self) -> None:
        """Give up what a failed save left, and older checkpoints: the last good one stays."""
        failed = self.root / step_folder(self._step)
        self._remove(failed, keep=1, newest_good=self.last_complete_step)

    def _remove(self, *unfinished: Path, keep: int, newest_good: int) -> None:
        """What cannot be removed, or even listed, takes room and nothing else."""
        try:
            left = [path for path in unfinished if path.is_dir() and not is_marked(path)]
            folders = step_folders(self.root)
            old = prunable(folders, keep=keep, newest_good=newest_good, damaged=self._damaged)
        except OSError as error:
            self._warn("checkpoint_not_removed", folder=self.root.name, reason=str(error))
            return
        for folder in dict.fromkeys([*left, *old]):
            try:
                remove_folder(folder)
            except OSError as error:
                self._warn("checkpoint_not_removed", folder=folder.name, reason=str(error))

    def load_newest(
        self, model: nn.Module, optimizer: torch.optim.Optimizer
    ) -> CompleteMarker | None:
        """Load the newest checkpoint that is complete and undamaged; None when there is none."""
        names = [folder.name for folder in step_folders(self.root)]
        for name in self._world.from_first(names):
            folder = self.root / name
            found = self._usable(folder)
            if isinstance(found, str):
                self._warn("checkpoint_skipped", folder=name, reason=found)
                self._damaged.add(name)
                continue
            if found.recipe_sha256 != self._recipe_sha256:
                raise user_error(
                    f"checkpoint {name} of run {found.run_id!r} was made with another model, "
                    "recipe or length; start a new run_id for a changed run"
                )
            if found.dataset_sha256 not in (None, self._dataset_sha256):
                raise user_error(
                    f"checkpoint {name} of run {found.run_id!r} was made with other data: the "
                    "dataset's manifest has changed since. Bring the old one back, or start a new "
                    "run_id for the new data"
                )
            state = _state(model, optimizer)
            load(state, checkpoint_id=folder)
            set_state_dict(
                model,
                optimizer,
                model_state_dict=state["model"],
                optim_state_dict=state["optimizer"],
            )
            self.last_complete_step = found.step
            return found
        return None

    def _usable(self, folder: Path) -> CompleteMarker | str:
        """Agreed by all ranks: what the marker says, or why the checkpoint cannot be used."""
        marker: CompleteMarker | None = None
        try:
            marker = read_marker(folder)
            problem = find_checkpoint_damage(
                folder, marker, part=self._world.rank, parts=self._world.size
            )
            if problem is None and self._world.is_first:
                # It has checked .metadata by now, which comes first, so it is safe to unpickle.
                problem = find_unlisted(folder, marker)
        except FileNotFoundError:
            problem = "it is not complete"
        except (OSError, ValueError) as error:
            problem = str(error)
        agreed = self._world.first_problem(problem)
        if agreed is not None or marker is None:
            return agreed or "it cannot be read"
        return marker


def find_unlisted(folder: Path, marker: CompleteMarker) -> str | None:
    """Why not to trust it: torch's index needs a file that the marker does not list; else None."""
    stored = FileSystemReader(folder).read_metadata().storage_data or {}
    needed = {record.relative_path for record in stored.values()}
    unlisted = sorted(needed - marker.files.keys())
    return f"{METADATA_FILE} needs {unlisted[0]}, which is not listed" if unlisted else None


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Plain tensors that share the memory of the model's and the optimizer's.

    What torchao wraps to gather in 8 bits would be saved as garbage by the copy that asynchronous
    saving makes, and could not be loaded into a model of another precision.
    """
    if not optimizer.state:
        # torch fills it by a step without gradients, which must not count as one of training.
        get_state_dict(model, optimizer)
        for moments in optimizer.state.values():
            moments["step"].zero_()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    plain: dict[str, Any] = tree_map_only(Tensor, unwrapped, state)
    return plain

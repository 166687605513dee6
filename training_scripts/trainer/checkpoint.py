"""Distributed checkpoints: saved by all ranks, complete or ignored, checked before loading."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from cdk_blackwell.planning.contracts import step_folder
from cdk_blackwell.planning.records import CompleteMarker
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.completeness import (
    clear_folder,
    find_checkpoint_damage,
    measure,
    prunable,
    read_marker,
    remove_folder,
    step_folders,
    write_marker,
    writing_rank,
)
from trainer.errors import user_error
from trainer.parallel import World

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


class Checkpointer:
    """Saves and loads model, optimizer and position below one folder."""

    def __init__(self, root: Path, spec: RunSpec, world: World, *, warn: Warn) -> None:
        self.root = root
        self.last_complete_step = 0
        """Newest step on disk that is known to be complete; 0 before the first."""
        self._spec, self._world, self._warn = spec, world, warn
        self._recipe_sha256 = recipe_sha256(spec)
        self._saved_at = time.monotonic()

    def interval_passed(self) -> bool:
        """Whether it is time to save, by this rank's clock; rank 0's is the one that counts."""
        return time.monotonic() - self._saved_at >= self._spec.checkpoint.interval_seconds

    def save(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        step: int,
        tokens: int,
        micro_batch_size: int | None = None,
    ) -> CompleteMarker:
        """Save everything; returns when the checkpoint is complete on disk."""
        folder = self.root / step_folder(step)
        if self._world.is_first:
            folder.mkdir(parents=True, exist_ok=True)
            clear_folder(folder)
        self._world.barrier()
        save(_state(model, optimizer), checkpoint_id=folder)
        mine = [p for p in folder.iterdir() if writing_rank(p.name) == self._world.rank]
        records = self._world.gather({path.name: measure(path) for path in mine})
        marker = CompleteMarker(
            run_id=self._spec.run_id,
            step=step,
            tokens=tokens,
            ranks=self._world.size,
            recipe_sha256=self._recipe_sha256,
            files={name: record for part in records for name, record in part.items()},
            micro_batch_size=micro_batch_size,
        )
        if self._world.is_first:
            write_marker(folder, marker)
            for old in prunable(step_folders(self.root), keep=self._spec.checkpoint.keep):
                remove_folder(old)
        self._world.barrier()
        self.last_complete_step = step
        self._saved_at = time.monotonic()
        return marker

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
                continue
            if found.recipe_sha256 != self._recipe_sha256:
                raise user_error(
                    f"checkpoint {name} of run {found.run_id!r} was made with another model, "
                    "recipe or dataset; start a new run_id for a changed run"
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
        except FileNotFoundError:
            problem = "it is not complete"
        except (OSError, ValueError) as error:
            problem = str(error)
        agreed = self._world.first_problem(problem)
        if agreed is not None or marker is None:
            return agreed or "it cannot be read"
        return marker


def _state(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    model_state, optimizer_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optimizer": optimizer_state}

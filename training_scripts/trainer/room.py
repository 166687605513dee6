"""Whether checkpoints can be kept at all, found out before anything is trained.

Saves that fail later are outlived for a while, since an older checkpoint is there. At the start
there is none: a folder that cannot be written, or a disk too small for one checkpoint, would cost
hours of GPUs before the first save tells.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cdk_blackwell.planning.cost import checkpoint_bytes
from cdk_blackwell.planning.model_shape import ModelShape
from trainer.completeness import newest_marked_step
from trainer.errors import TrainingError, classify, describe, user_error
from trainer.parallel import World
from trainer.saving import Trouble

GIB: Final = 1024**3

Warn = Callable[..., None]


def check_room(folder: Path, model: ModelShape, world: World, *, warn: Warn) -> None:
    """Every rank tries to write there; rank 0 compares the free space with a checkpoint.

    Raises TrainingError, the same on all ranks, when no checkpoint could be written. Where an older
    one is there already, too little space is an event ``checkpoint_room`` and no more, because
    saving gives up older checkpoints for room.
    """
    troubles = world.gather(_try_to_write(folder, rank=world.rank))
    trouble = next((one for one in troubles if one is not None), None)
    if trouble is not None:
        raise TrainingError(trouble.kind, trouble.message)
    free = world.from_first(shutil.disk_usage(folder).free)
    needed = checkpoint_bytes(model)
    if free >= needed:
        return
    told = (
        f"the disk of {folder} has {free / GIB:.1f} GiB free and a checkpoint of this model takes "
        f"{needed / GIB:.1f} GiB"
    )
    if not world.from_first(newest_marked_step(folder)):
        raise user_error(f"{told}; nothing was trained. Free space there or give a larger disk")
    warn("checkpoint_room", reason=told)


def _try_to_write(folder: Path, *, rank: int) -> Trouble | None:
    """Write, and leave nothing."""
    probe = folder / f".probe-{rank}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"probe")
        probe.unlink()
    except OSError as error:
        reason = error.strerror or describe(error)
        return Trouble(
            kind=classify(error),
            message=f"checkpoints cannot be written to {folder} ({reason}); nothing was trained. "
            "Let the container's user write there, or mount the channel for reading and writing",
        )
    return None

"""The run's dataset: waited for, checked before the first step, and opened.

What is checked, and when:

* Always: the manifest, the tokenizer (with its SHA-256), every shard's existence and size.
* A shard's SHA-256 only at the run's very first start - not in later attempts, nor after torchrun's
  restarts - and only up to ``CHECKSUM_LIMIT_BYTES`` in all. FSx reads from 0.3 GB/s, so hashing a
  large dataset would idle GPUs that cost far more than what it could save; an event says so then.
* FSx for Lustre imports names and sizes from S3 asynchronously, so a dataset that is not whole yet
  is waited for, by rank 0, with events. What is there but wrong in itself is not waited for.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cdk_blackwell.planning.contracts import CONTAINER_ROOT
from cdk_blackwell.planning.run_spec import RunSpec
from trainer.container import Container
from trainer.data import SequenceReader, find_shard_damage, open_manifest
from trainer.errors import data_error, user_error
from trainer.manifest import (
    ITEM_BYTES,
    SPLIT_TRAIN,
    SPLIT_VALIDATION,
    IncompleteManifestError,
    Manifest,
)
from trainer.metrics import Reporter
from trainer.parallel import World
from trainer.tokenizer import find_tokenizer_damage

GIB: Final = 1024**3
CHECKSUM_LIMIT_BYTES: Final = 32 * GIB
"""About two minutes at 0.3 GB/s."""
PATIENCE_SECONDS: Final = 600.0
"""How long an import from S3 may take; below the collectives' timeout, in which others wait."""
LOCAL_PATIENCE_SECONDS: Final = 20.0
"""The same where ``CDKB_ROOT`` moved the container's tree: nothing is imported there."""
POLL_SECONDS: Final = 5.0
EVENT_SECONDS: Final = 30.0
EXPORT_MODULE: Final = "safetensors.torch"


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """The run's data, checked."""

    folder: Path
    manifest: Manifest
    train: SequenceReader
    held_out: SequenceReader


def open_dataset(
    spec: RunSpec,
    container: Container,
    world: World,
    report: Reporter,
    *,
    stop_requested: Callable[[], bool],
) -> Dataset | None:
    """Wait for the dataset, check it, each rank a part of the checksums, and open both splits.

    None when a stop was asked for while waiting.
    """
    path = container.channel(spec.data.channel) / spec.data.manifest
    if not world.from_first(
        not world.is_first
        or wait_for_dataset(
            path,
            patience_seconds=patience_seconds(container),
            announce=report.event,
            stop_requested=stop_requested,
        )
    ):
        return None
    manifest = open_manifest(path, model_vocab_size=spec.model.vocab_size)
    checksums = wants_checksums(manifest, container, report)
    problem = world.first_problem(
        (find_tokenizer_damage(path.parent, manifest.tokenizer) if world.is_first else None)
        or find_shard_damage(
            path.parent, manifest, part=world.rank, parts=world.size, checksums=checksums
        )
    )
    if problem:
        raise data_error(problem)
    train, held_out = (
        SequenceReader(
            path.parent,
            manifest,
            split,
            sequence_length=spec.recipe.sequence_length,
            vocab_size=spec.model.vocab_size,
        )
        for split in (SPLIT_TRAIN, SPLIT_VALIDATION)
    )
    problem = find_shortage(manifest, train)
    if problem:
        raise data_error(f"{path}: {problem}")
    return Dataset(folder=path.parent, manifest=manifest, train=train, held_out=held_out)


def find_shortage(manifest: Manifest, train: SequenceReader) -> str | None:
    """Why there is nothing to train on, in the whole or in one source of a mixture, or None."""
    needed = train.sequence_length + 1
    empty = [one.folder for one in manifest.sources if one.folder not in train.lengths]
    if len(train) and not empty:
        return None
    if empty and len(train):
        return (
            f"no training shard of the source {empty[0]} holds a whole sequence of "
            f"{train.sequence_length} tokens; prepare more of it, with a larger --shard-tokens if "
            "its shards are small, or leave it out of the mixture"
        )
    tokens = manifest.tokens(SPLIT_TRAIN)
    if tokens < needed:
        return (
            f"the training split holds {tokens} tokens, less than one sequence of "
            f"{train.sequence_length} and its last target; prepare more text or train on shorter "
            "sequences"
        )
    return (
        f"the longest training shard holds {train.longest_shard} tokens, less than one sequence of "
        f"{train.sequence_length} and its last target; prepare the data with --shard-tokens of "
        f"{needed} or more"
    )


def check_export_package(spec: RunSpec) -> None:
    """Refuse at the start what would otherwise fail after the last step."""
    if not spec.checkpoint.export:
        return
    try:
        importlib.import_module(EXPORT_MODULE)
    except ImportError as error:
        raise user_error(
            f"the export needs {EXPORT_MODULE}, which cannot be imported ({error}): run "
            "'cdk-blackwell vendor' before the next deploy, use an image that has it, or set "
            "checkpoint.export to false"
        ) from error


def patience_seconds(container: Container) -> float:
    """How long to wait for the dataset."""
    in_place = container.root == Path(CONTAINER_ROOT)
    return PATIENCE_SECONDS if in_place else LOCAL_PATIENCE_SECONDS


def wants_checksums(manifest: Manifest, container: Container, report: Reporter) -> bool:
    """Whether shards are hashed at this start; an event says when they are too large for it."""
    if container.attempt > 1 or container.restarts > 0:
        return False
    size = sum(manifest.tokens(split) for split in manifest.splits) * ITEM_BYTES[manifest.dtype]
    if size <= CHECKSUM_LIMIT_BYTES:
        return True
    report.event(
        "dataset_checked_by_size",
        gib=round(size / GIB, 1),
        limit_gib=round(CHECKSUM_LIMIT_BYTES / GIB, 1),
        reason="hashing all shards would keep the GPUs waiting",
    )
    return False


def wait_for_dataset(
    path: Path,
    *,
    patience_seconds: float,
    announce: Callable[..., None],
    stop_requested: Callable[[], bool] = lambda: False,
    sleep: Callable[[float], None] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Wait until all files are there in full, or patience ends; False when asked to stop.

    Says nothing about what is wrong in the end: the checks that follow do.
    """
    deadline = clock() + patience_seconds
    next_event = clock()
    while (missing := find_missing(path)) is not None and clock() < deadline:
        if stop_requested():
            return False
        if clock() >= next_event:
            left = round(deadline - clock())
            announce("waiting_for_dataset", reason=missing, seconds_left=left)
            next_event = clock() + EVENT_SECONDS
        sleep(min(POLL_SECONDS, max(0.0, deadline - clock())))
    return True


def find_missing(path: Path) -> str | None:
    """What an import under way may still bring, or None."""
    try:
        manifest = Manifest.read(path)
    except IncompleteManifestError as error:
        return str(error)
    except ValueError:
        return None
    if not (path.parent / manifest.tokenizer.file).exists():
        return f"tokenizer {path.parent / manifest.tokenizer.file} is missing"
    return find_shard_damage(path.parent, manifest, checksums=False)

"""From the checkpoint bucket to a folder, compared with what the marker says."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

from cdk_blackwell.cli.checkpoints.found import Checkpoint
from cdk_blackwell.cli.errors import CheckFailedError, CommandError
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.planning.contracts import COMPLETE_FILE, step_folder
from cdk_blackwell.planning.records import CompleteMarker


def fetch_checkpoint(
    aws: Aws, bucket: str, checkpoint: Checkpoint, folder: Path, say: Callable[[str], None]
) -> Path:
    """Download into ``folder/step-...`` and return it; the marker comes last, as it was written.

    A file that is there already and matches is kept, so that a broken transfer may be repeated.
    CheckFailedError when a file that arrived differs from what the marker says.
    """
    marker = checkpoint.marker
    if marker is None:
        raise CommandError(f"checkpoint {checkpoint.step} is not complete: {checkpoint.problem}")
    target = folder / step_folder(checkpoint.step)
    for name in marker.files:
        if not (target / name).resolve().is_relative_to(target.resolve()):
            raise CheckFailedError(
                f"{COMPLETE_FILE} of checkpoint {checkpoint.step} lists {name!r}, which lies "
                "outside of it: somebody else wrote into the bucket"
            )
    target.mkdir(parents=True, exist_ok=True)
    _require_room(target, _missing_bytes(target, marker))
    for number, (name, record) in enumerate(sorted(marker.files.items()), 1):
        path = target / name
        if path.is_file() and sha256(path) == record.sha256:
            continue
        say(f"{number}/{len(marker.files)} {name} ({record.bytes / 2**30:.2f} GiB)")
        path.parent.mkdir(parents=True, exist_ok=True)
        aws.client("s3").download_file(bucket, checkpoint.prefix + name, str(path))
        if sha256(path) != record.sha256:
            raise CheckFailedError(
                f"{path} differs from what {COMPLETE_FILE} says: fetch an earlier checkpoint "
                "with --step"
            )
    (target / COMPLETE_FILE).write_text(marker.to_json())
    return target


def _missing_bytes(target: Path, marker: CompleteMarker) -> int:
    """Of all files that are not there in full."""
    return sum(
        record.bytes
        for name, record in marker.files.items()
        if not (target / name).is_file() or (target / name).stat().st_size != record.bytes
    )


def _require_room(folder: Path, wanted: int) -> None:
    free = shutil.disk_usage(folder).free
    if wanted > free:
        raise CommandError(
            f"{folder} has {free / 2**30:,.1f} GiB free, the checkpoint needs "
            f"{wanted / 2**30:,.1f} GiB: give another folder"
        )


def sha256(path: Path) -> str:
    """Hexadecimal, of a file of any size."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()

"""From the checkpoint bucket to a folder, compared with what the marker says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from cdk_blackwell.cli.checkpoints.found import Checkpoint
from cdk_blackwell.cli.errors import CheckFailedError, CommandError
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.planning.contracts import COMPLETE_FILE, step_folder


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
    target.mkdir(parents=True, exist_ok=True)
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


def sha256(path: Path) -> str:
    """Hexadecimal, of a file of any size."""
    with path.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()

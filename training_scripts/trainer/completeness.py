"""``COMPLETE.json``: when a checkpoint counts. Written last; without it a folder is ignored.

SageMaker's checkpoint upload puts marker files beside every file, which come and go at any time.
They are no part of a checkpoint, and no listing here may rely on a file that it does not know.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import time
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

from cdk_blackwell.planning.contracts import COMPLETE_FILE, parse_step_folder
from cdk_blackwell.planning.records import CompleteMarker, FileRecord
from trainer.manifest import file_sha256

METADATA_FILE: Final = ".metadata"
UPLOADING_SUFFIX: Final = ".sagemaker-uploading"
UPLOAD_SECONDS: Final = 3600.0
"""Age at which an upload's marker is taken for one whose upload died with its container; the upload
of a file takes minutes. This project's choice."""
_RANK_FILE: Final = re.compile(r"__(\d+)_\d+\.distcp")


def writing_rank(name: str) -> int | None:
    """The rank that wrote a checkpoint's file; None for what is no part of a checkpoint."""
    if name == METADATA_FILE:
        return 0
    match = _RANK_FILE.fullmatch(name)
    return int(match.group(1)) if match else None


def measure(path: Path) -> FileRecord:
    """Size and checksum of a checkpoint's file."""
    return FileRecord(bytes=path.stat().st_size, sha256=file_sha256(path))


def write_marker(folder: Path, marker: CompleteMarker) -> None:
    """Write ``COMPLETE.json`` whole or not at all."""
    draft = folder / f".{COMPLETE_FILE}.tmp"
    with draft.open("w") as sink:
        sink.write(marker.to_json())
        sink.flush()
        os.fsync(sink.fileno())
    draft.replace(folder / COMPLETE_FILE)


def read_marker(folder: Path) -> CompleteMarker:
    """Read it; ValueError when it is damaged, FileNotFoundError when there is none."""
    return CompleteMarker.from_json((folder / COMPLETE_FILE).read_bytes())


def find_checkpoint_damage(
    folder: Path, marker: CompleteMarker, *, part: int = 0, parts: int = 1
) -> str | None:
    """Check all sizes and this rank's part of the checksums; the first problem or None."""
    listed = [(name, marker.files[name]) for name in sorted(marker.files)]
    state = [(name, record) for name, record in listed if writing_rank(name) is not None]
    if parse_step_folder(folder.name) != marker.step:
        # Its numbers would be trained on as those of another step, which repeats or omits work.
        return f"{COMPLETE_FILE} is of step {marker.step}"
    if METADATA_FILE not in marker.files:
        return f"{METADATA_FILE} is not listed"
    for number, (name, record) in enumerate(state):
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
    found = [
        path
        for path in root.iterdir()
        if parse_step_folder(path.name) is not None and path.is_dir()
    ]
    return sorted(found, key=lambda path: path.name, reverse=True)


def is_marked(folder: Path) -> bool:
    """Whether the folder has ``COMPLETE.json``, its files unchecked; not where none can look."""
    try:
        return (folder / COMPLETE_FILE).is_file()
    except OSError:
        return False


def newest_marked_step(root: Path) -> int:
    """Step of the newest folder with ``COMPLETE.json``, its files unchecked; 0 without any."""
    marked = (path.name for path in step_folders(root) if is_marked(path))
    return next((step for name in marked if (step := parse_step_folder(name)) is not None), 0)


def prunable(
    folders: Iterable[Path],
    *,
    keep: int,
    newest_good: int | None = None,
    damaged: Collection[str] = (),
) -> list[Path]:
    """Complete folders beyond the newest ``keep`` (at least one), and incomplete older ones.

    ``folders`` come newest first. Anything newer than the newest complete folder stays: it may be
    in the middle of being written. So does, until the next time, one that is being uploaded.

    ``newest_good``: step of the newest checkpoint that is known to be good; marked folders of later
    steps were skipped for their damage, so they neither count nor go. Default: all marked ones are.
    ``damaged``: names of folders that were skipped; once training has passed them they go first.
    """
    complete_seen = 0
    out = []
    for folder in folders:
        step = parse_step_folder(folder.name)
        if newest_good is not None and step is not None and step > newest_good:
            continue
        if is_marked(folder) and folder.name not in damaged:
            complete_seen += 1
            if complete_seen > max(1, keep):
                out.append(folder)
        elif complete_seen:
            out.append(folder)
    return [folder for folder in out if not is_uploading(folder)]


def is_uploading(folder: Path) -> bool:
    """Whether SageMaker is in the middle of copying one of the folder's files to S3.

    A marker of an upload that died stays for ever, so one older than an hour says nothing.
    """
    for path in folder.iterdir():
        if path.name.endswith(UPLOADING_SUFFIX):
            try:
                age = time.time() - path.stat().st_mtime
            except FileNotFoundError:
                continue  # done in this very moment
            if age < UPLOAD_SECONDS:
                return True
    return False


def clear_folder(folder: Path) -> None:
    """Empty a checkpoint's folder, its marker first, so that a half-removed one never counts.

    Folders in it are somebody else's, such as an editor's; a link goes, not what it leads to.
    """
    for path in (folder / COMPLETE_FILE, *folder.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


def remove_folder(folder: Path) -> None:
    """Remove a checkpoint; a folder that an upload fills again meanwhile stays for the next time.

    Without its marker it does not count, and pruning finds it again.
    """
    clear_folder(folder)
    try:
        folder.rmdir()
    except OSError as error:
        if error.errno != errno.ENOTEMPTY:
            raise

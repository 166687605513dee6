"""When a checkpoint counts and when it goes, also beside SageMaker's upload of the same folder."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import pytest

from cdk_blackwell.planning.contracts import step_folder
from cdk_blackwell.planning.records import CompleteMarker, FileRecord
from trainer.completeness import (
    UPLOAD_SECONDS,
    clear_folder,
    find_checkpoint_damage,
    is_marked,
    measure,
    newest_marked_step,
    prunable,
    read_marker,
    remove_folder,
    step_folders,
    write_marker,
    writing_rank,
)


@pytest.mark.parametrize(
    ("name", "rank"),
    [
        ("__0_0.distcp", 0),
        ("__12_3.distcp", 12),
        (".metadata", 0),
        ("__0_0.distcp.sagemaker-uploading", None),
        ("__0_0.distcp.sagemaker-uploaded", None),
        (".metadata.sagemaker-uploaded", None),
        (".metadata.tmp", None),
        ("COMPLETE.json", None),
        (".COMPLETE.json.tmp", None),
        ("notes.txt", None),
    ],
)
def test_only_the_checkpoint_librarys_files_are_part_of_a_checkpoint(
    name: str, rank: int | None
) -> None:
    assert writing_rank(name) == rank


def folder(root: Path, step: int, *, complete: bool = True) -> Path:
    path = root / step_folder(step)
    path.mkdir()
    (path / ".metadata").write_bytes(b"plan")
    (path / "__0_0.distcp").write_bytes(b"state")
    if complete:
        write_marker(path, marker(path))
    return path


def marker(path: Path) -> CompleteMarker:
    return CompleteMarker(
        run_id="r",
        step=3,
        tokens=30,
        ranks=2,
        recipe_sha256="x",
        files={name: measure(path / name) for name in (".metadata", "__0_0.distcp")},
    )


def test_a_marker_reads_back_and_its_files_are_checked(tmp_path: Path) -> None:
    path = folder(tmp_path, 3)
    written = read_marker(path)
    assert written == marker(path)
    assert find_checkpoint_damage(path, written) is None
    (path / "__0_0.distcp").write_bytes(b"stale")
    assert find_checkpoint_damage(path, written) == "__0_0.distcp does not match its SHA-256"


def test_every_files_checksum_is_checked_by_some_rank(tmp_path: Path) -> None:
    path = folder(tmp_path, 3)
    written = read_marker(path)
    (path / "__0_0.distcp").write_bytes(b"stale")
    found = [find_checkpoint_damage(path, written, part=part, parts=2) for part in range(2)]
    assert [problem for problem in found if problem] == ["__0_0.distcp does not match its SHA-256"]


def test_upload_markers_that_were_listed_once_are_not_missed(tmp_path: Path) -> None:
    path = folder(tmp_path, 3)
    gone = {"__0_0.distcp.sagemaker-uploaded": FileRecord(bytes=0, sha256="y")}
    written = replace(marker(path), files=marker(path).files | gone)
    assert find_checkpoint_damage(path, written) is None


def test_a_marker_without_metadata_cannot_be_used(tmp_path: Path) -> None:
    path = folder(tmp_path, 3)
    assert find_checkpoint_damage(path, replace(marker(path), files={})) == (
        ".metadata is not listed"
    )


@pytest.mark.parametrize("step", [2, 4, 0, -3])
def test_a_marker_of_another_step_is_damage(step: int, tmp_path: Path) -> None:
    """Weights of one step counted as another's would repeat or omit what lies between."""
    path = folder(tmp_path, 3)
    assert find_checkpoint_damage(path, replace(marker(path), step=step)) == (
        f"COMPLETE.json is of step {step}"
    )


def test_pruning_spares_the_newest_complete_and_all_newer(tmp_path: Path) -> None:
    states = {5: False, 4: True, 3: False, 2: True, 1: True}
    folders = [folder(tmp_path, step, complete=done) for step, done in states.items()]
    assert [path.name[-1] for path in prunable(folders, keep=2)] == ["3", "1"]
    assert [path.name[-1] for path in prunable(folders, keep=0)] == ["3", "2", "1"]


def test_what_is_being_uploaded_is_pruned_the_next_time(tmp_path: Path) -> None:
    folders = [folder(tmp_path, step) for step in (3, 2, 1)]
    uploading = folders[1] / "__0_0.distcp.sagemaker-uploading"
    uploading.touch()
    assert prunable(folders, keep=1) == [folders[2]]
    uploading.rename(folders[1] / "__0_0.distcp.sagemaker-uploaded")
    assert prunable(folders, keep=1) == [folders[1], folders[2]]


def test_a_marker_of_an_upload_that_died_holds_nothing_back(tmp_path: Path) -> None:
    folders = [folder(tmp_path, step) for step in (2, 1)]
    dead = folders[1] / "__0_0.distcp.sagemaker-uploading"
    dead.touch()
    assert prunable(folders, keep=1) == []
    old = time.time() - UPLOAD_SECONDS - 1
    os.utime(dead, (old, old))
    assert prunable(folders, keep=1) == [folders[1]]


def test_files_that_vanish_while_a_folder_goes_do_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(tmp_path, 3)
    (path / "__0_0.distcp.sagemaker-uploaded").touch()
    unlink = Path.unlink

    def race(self: Path, missing_ok: bool = False) -> None:
        """The upload removes each file just before this process does."""
        unlink(self, missing_ok=True)
        unlink(self, missing_ok=missing_ok)

    monkeypatch.setattr(Path, "unlink", race)
    remove_folder(path)
    assert not path.exists()


def test_a_folder_that_is_filled_while_it_goes_stays_but_never_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest, old = folder(tmp_path, 4), folder(tmp_path, 3)
    rmdir = Path.rmdir

    def race(self: Path) -> None:
        (self / "__0_0.distcp.sagemaker-uploaded").touch()
        rmdir(self)

    monkeypatch.setattr(Path, "rmdir", race)
    remove_folder(old)
    assert [path.name for path in old.iterdir()] == ["__0_0.distcp.sagemaker-uploaded"]
    monkeypatch.undo()
    assert prunable(step_folders(tmp_path), keep=1) == [old]
    remove_folder(old)
    assert step_folders(tmp_path) == [newest]


def test_what_others_put_into_a_folder_goes_with_it_and_links_lead_nowhere(tmp_path: Path) -> None:
    path = folder(tmp_path, 3)
    (path / "COMPLETE.json").unlink()
    for inner in (path / "COMPLETE.json", path / ".ipynb_checkpoints"):
        inner.mkdir()
        (inner / "x").touch()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept").touch()
    (path / "link").symlink_to(elsewhere)
    assert not is_marked(path)
    remove_folder(path)
    assert not path.exists()
    assert (elsewhere / "kept").exists()


def test_a_damaged_checkpoint_is_not_one_of_those_that_are_kept(tmp_path: Path) -> None:
    folders = [folder(tmp_path, step) for step in (4, 3, 2, 1)]
    damaged = {folders[1].name}
    assert prunable(folders, keep=2, damaged=damaged) == [folders[1], folders[3]]


def test_a_folder_that_cannot_be_looked_into_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = folder(tmp_path, 3)

    def refuse(self: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_file", refuse)
    assert not is_marked(path)


def test_a_folder_is_cleared_before_it_is_written_again(tmp_path: Path) -> None:
    path = folder(tmp_path, 3)
    clear_folder(path)
    assert list(path.iterdir()) == []


def test_the_newest_marked_step_is_known_before_anything_is_loaded(tmp_path: Path) -> None:
    assert newest_marked_step(tmp_path / "absent") == 0
    for step, complete in {2: True, 3: True, 4: False}.items():
        folder(tmp_path, step, complete=complete)
    assert newest_marked_step(tmp_path) == 3

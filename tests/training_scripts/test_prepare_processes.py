"""What a long preparation tells, and what happens when a process of it is killed."""

from __future__ import annotations

import multiprocessing
import re
from pathlib import Path
from typing import Any

import pytest

import prepare_data
from preparation import documents, encoding
from preparation.journal import Journal
from tests.training_scripts.test_prepare_data import files_of, prepare, write_sources
from trainer.manifest import Manifest


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    return write_sources(tmp_path / "sources")


def test_a_killed_tokenising_process_is_said_in_one_line_and_the_work_goes_on(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """As the kernel does when memory is short."""
    assert prepare(sources, tmp_path / "whole") == 0
    real = encoding.encode_all

    def lose_one(tasks: Any, encoder: Any, *, workers: int) -> Any:
        stream = real(tasks, encoder, workers=workers)
        yield next(stream)
        for process in multiprocessing.active_children():
            process.kill()
            process.join()
        yield from stream

    monkeypatch.setattr(documents, "FILES_PER_TASK", 4)
    monkeypatch.setattr(prepare_data, "JOURNAL_SECONDS", 0.0)
    # So few tasks are handed out ahead that the others still wait when the processes are gone.
    monkeypatch.setattr(encoding, "TASKS_AHEAD", 1)
    with monkeypatch.context() as patched:
        patched.setattr(prepare_data, "encode_all", lose_one)
        assert prepare(sources, tmp_path / "out", "--workers", "2") == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "a tokenising process ended suddenly" in error
    assert "fewer --workers, it goes on from here" in error
    assert not (tmp_path / "out/manifest.json").exists()
    assert prepare(sources, tmp_path / "out") == 0
    assert "are kept" in capsys.readouterr().err
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_an_end_that_was_cut_off_leaves_no_manifest_beside_shards_that_are_made_again(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "remove", cut_off)
        assert prepare(sources, tmp_path / "out") == 130
    assert (tmp_path / "out/manifest.json").exists()
    with monkeypatch.context() as patched:
        patched.setattr(prepare_data, "write_all", cut_off)
        assert prepare(sources, tmp_path / "out") == 130
    assert not (tmp_path / "out/manifest.json").exists()
    assert prepare(sources, tmp_path / "out") == 0
    assert prepare(sources, tmp_path / "whole") == 0
    assert files_of(tmp_path / "out") == files_of(tmp_path / "whole")


def test_without_a_terminal_progress_is_a_line_now_and_then(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(documents, "FILES_PER_TASK", 15)
    assert prepare(sources, tmp_path / "quiet") == 0
    assert "%" not in capsys.readouterr().err
    monkeypatch.setattr(prepare_data, "LINE_SECONDS", 0.0)
    assert prepare(sources, tmp_path / "out") == 0
    error = capsys.readouterr().err
    lines = re.findall(r"^(\d+)%, ([\d,]+) tokens$", error, re.MULTILINE)
    shares = [int(share) for share, _ in lines]
    tokens = [int(count.replace(",", "")) for _, count in lines]
    assert len(lines) == 4
    assert shares == sorted(shares)
    assert shares[-1] == 100
    manifest = Manifest.read(tmp_path / "out/manifest.json")
    assert tokens == sorted(tokens)
    assert tokens[-1] == manifest.tokens("train") + manifest.tokens("validation")
    assert "\x1b" not in error

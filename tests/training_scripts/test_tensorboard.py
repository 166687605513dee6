"""Curves beside the printed lines: the same numbers, and never a reason to stop."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from trainer.tensorboard import FOLDER, open_tensorboard


class Events(list[tuple[str, dict[str, Any]]]):
    def __call__(self, event: str, **details: Any) -> None:
        self.append((event, details))


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    reader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    events = reader.EventAccumulator(str(folder))
    events.Reload()
    return {
        tag: [(event.step, event.value) for event in events.Scalars(tag)]
        for tag in events.Tags()["scalars"]
    }


def test_every_number_of_a_metrics_line_is_a_curve(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    events = Events()
    board = open_tensorboard(tmp_path, warn=events)
    assert board is not None
    board.put({"step": 10, "loss": 2.5, "mfu": 40.0})
    board.put({"step": 20, "loss": 1.25})
    board.close()
    assert curves(tmp_path / FOLDER) == {"loss": [(10, 2.5), (20, 1.25)], "mfu": [(10, 40.0)]}
    assert not events


def test_without_the_package_it_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    events = Events()
    assert open_tensorboard(tmp_path, warn=events) is None
    ((name, details),) = events
    assert name == "tensorboard_off"
    assert "tensorboard cannot be imported" in details["reason"]


def test_a_folder_that_cannot_be_written_costs_only_the_curves(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    (tmp_path / "file").write_text("")
    events = Events()
    assert open_tensorboard(tmp_path / "file", warn=events) is None
    assert [name for name, _ in events] == ["tensorboard_off"]


def test_a_disk_that_fills_up_later_is_told_and_outlived(tmp_path: Path) -> None:
    class Full:
        def add_scalar(self, *_: object) -> None:
            raise OSError(28, "No space left on device")

    from trainer.tensorboard import TensorBoard

    events = Events()
    writer: Any = Full()
    board = TensorBoard(writer, warn=events)
    board.put({"step": 1, "loss": 1.0})
    board.put({"step": 2, "loss": 1.0})
    board.close()
    assert [name for name, _ in events] == ["tensorboard_off"]

"""The dataset at a run's start: waited for while it is imported, checked where it is cheap."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.training_scripts.tiny import tiny_spec, write_container, write_dataset
from trainer import dataset as dataset_module
from trainer.container import Container
from trainer.dataset import (
    LOCAL_PATIENCE_SECONDS,
    PATIENCE_SECONDS,
    check_export_package,
    find_missing,
    open_dataset,
    patience_seconds,
    wait_for_dataset,
    wants_checksums,
)
from trainer.errors import TrainingError
from trainer.manifest import Manifest, Shard, Tokenizer
from trainer.metrics import Reporter
from trainer.parallel import COLLECTIVE_TIMEOUT, World

WORLD = World(rank=0, size=1, device=torch.device("cpu"))


def container(root: Path = Path("/opt/ml"), **changes: Any) -> Container:
    return Container(
        **{"root": root, "checkpoints": root / "c", "run_uri": None, "attempt": 1, **changes}
    )


# --- Waiting for an import -----------------------------------------------------------------------


@dataclass
class Import:
    """Time that passes only by sleeping, and files that come while it does."""

    arrivals: list[Callable[[], object]] = field(default_factory=list)
    now: float = 0.0
    events: list[dict[str, Any]] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if self.arrivals:
            self.arrivals.pop(0)()

    def announce(self, event: str, **details: Any) -> None:
        self.events.append({"event": event, **details})

    def wait(
        self, path: Path, patience: float, stop_requested: Callable[[], bool] = lambda: False
    ) -> bool:
        return wait_for_dataset(
            path,
            patience_seconds=patience,
            announce=self.announce,
            stop_requested=stop_requested,
            sleep=self.sleep,
            clock=lambda: self.now,
        )


def test_a_whole_dataset_is_not_waited_for(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    slow = Import()
    assert slow.wait(tmp_path / "manifest.json", 600)
    assert (slow.now, slow.events) == (0.0, [])


def test_files_are_waited_for_until_all_are_there_in_full(tmp_path: Path) -> None:
    write_dataset(tmp_path / "source")
    target = tmp_path / "target"
    target.mkdir()

    def bring(name: str, *, cut: int | None = None) -> Callable[[], object]:
        data = (tmp_path / "source" / name).read_bytes()[:cut]
        return lambda: (target / name).write_bytes(data)

    slow = Import(
        arrivals=[
            bring("manifest.json", cut=20),
            bring("manifest.json"),
            bring("tokenizer.json"),
            bring("train-00000.bin", cut=10),
            bring("train-00000.bin"),
            bring("train-00001.bin"),
            bring("validation-00000.bin"),
        ]
    )
    assert slow.wait(target / "manifest.json", 600)
    assert not slow.arrivals
    assert slow.now == 35.0
    assert [event["event"] for event in slow.events] == ["waiting_for_dataset"] * 2
    assert "does not exist" in slow.events[0]["reason"]
    assert slow.events[0]["seconds_left"] == 600
    assert "validation-00000.bin is missing" in slow.events[1]["reason"]


@pytest.mark.parametrize("patience", [0.0, 12.0, 600.0])
def test_patience_ends(patience: float, tmp_path: Path) -> None:
    slow = Import()
    assert slow.wait(tmp_path / "manifest.json", patience)
    assert slow.now == patience


def test_a_stop_ends_the_wait(tmp_path: Path) -> None:
    slow = Import()
    assert not slow.wait(tmp_path / "manifest.json", 600, lambda: slow.now > 10)
    assert slow.now == 15.0


def test_what_time_cannot_mend_is_not_waited_for(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema_version": 9}))
    assert find_missing(path) is None


def test_a_missing_tokenizer_may_still_come(tmp_path: Path) -> None:
    write_dataset(tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    assert "tokenizer.json is missing" in str(find_missing(tmp_path / "manifest.json"))


def test_patience_is_short_where_nothing_is_imported(tmp_path: Path) -> None:
    assert patience_seconds(container()) == PATIENCE_SECONDS == 600
    assert patience_seconds(container(tmp_path)) == LOCAL_PATIENCE_SECONDS <= 60
    # The other ranks wait in a collective meanwhile.
    assert COLLECTIVE_TIMEOUT.total_seconds() >= PATIENCE_SECONDS + 300


# --- Checksums -----------------------------------------------------------------------------------


def of_size(tokens: int) -> Manifest:
    return Manifest(
        dtype="uint32",
        tokenizer=Tokenizer(file="t", vocab_size=1, end_of_text_id=0, sha256=""),
        splits={"train": (Shard(file="a", tokens=tokens, sha256=""),)},
    )


GIB_OF_TOKENS = 1024**3 // 4


@pytest.mark.parametrize(
    ("gib", "attempt", "restarts", "wanted"),
    [(1, 1, 0, True), (32, 1, 0, True), (33, 1, 0, False), (1, 2, 0, False), (1, 1, 1, False)],
)
def test_shards_are_hashed_once_a_run_and_only_up_to_a_size(
    gib: int, attempt: int, restarts: int, wanted: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    at = container(attempt=attempt, restarts=restarts)
    assert wants_checksums(of_size(gib * GIB_OF_TOKENS), at, Reporter(WORLD)) == wanted
    printed = capsys.readouterr().out
    if gib > 32:
        event = json.loads(printed)
        assert (event["event"], event["gib"]) == ("dataset_checked_by_size", 33.0)
    else:
        assert not printed


@pytest.mark.parametrize(("text", "count"), [(None, 0), ("0", 0), ("2", 2)])
def test_restarts_are_torchruns(text: str | None, count: int) -> None:
    environment = {} if text is None else {"TORCHELASTIC_RESTART_COUNT": text}
    assert Container.from_environment(environment).restarts == count


# --- The whole -----------------------------------------------------------------------------------


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """One rank without a process group, and no patience."""
    monkeypatch.setattr(World, "from_first", lambda self, value: value)
    monkeypatch.setattr(World, "gather", lambda self, value: [value])
    monkeypatch.setattr(dataset_module, "LOCAL_PATIENCE_SECONDS", 0.0)
    assert not dist.is_initialized()


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "no-manifest": (lambda d: (d / "manifest.json").unlink(), "does not exist"),
    "cut-manifest": (lambda d: (d / "manifest.json").write_text("{"), "cannot be read"),
    "no-tokenizer": (lambda d: (d / "tokenizer.json").unlink(), "tokenizer.json cannot be read"),
    "other-tokenizer": (lambda d: flip(d / "tokenizer.json"), "not the one the manifest lists"),
    "no-shard": (lambda d: (d / "train-00001.bin").unlink(), "train-00001.bin is missing"),
    "cut-shard": (lambda d: (d / "train-00001.bin").write_bytes(b"x"), "bin is truncated"),
    "flipped-shard": (lambda d: flip(d / "train-00001.bin"), "train-00001.bin is corrupt"),
}


def open_in(root: Path, **changes: Any) -> object:
    return open_dataset(
        tiny_spec(),
        container(root, **changes),
        WORLD,
        Reporter(WORLD),
        stop_requested=lambda: False,
    )


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("name", DAMAGE)
def test_every_damage_is_found_before_the_first_step(name: str, tmp_path: Path) -> None:
    root = write_container(tmp_path, tiny_spec())
    damage, message = DAMAGE[name]
    damage(root / "input/data/dataset")
    with pytest.raises(TrainingError, match=message) as error:
        open_in(root)
    assert error.value.kind == "data"


@pytest.mark.usefixtures("alone")
def test_later_starts_check_shards_by_size_only(tmp_path: Path) -> None:
    root = write_container(tmp_path, tiny_spec())
    assert open_in(root) is not None
    flip(root / "input/data/dataset/train-00001.bin")
    assert open_in(root, attempt=2) is not None
    assert open_in(root, restarts=1) is not None
    with pytest.raises(TrainingError, match="corrupt"):
        open_in(root)


@pytest.mark.usefixtures("alone")
def test_a_stop_while_waiting_opens_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_module, "LOCAL_PATIENCE_SECONDS", 600.0)
    root = write_container(tmp_path, tiny_spec())
    (root / "input/data/dataset/manifest.json").unlink()
    reporter = Reporter(WORLD)
    at = container(root)
    assert open_dataset(tiny_spec(), at, WORLD, reporter, stop_requested=lambda: True) is None


def test_a_package_the_export_needs_is_missed_at_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exporting = tiny_spec(checkpoint={"export": True})
    check_export_package(exporting)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    check_export_package(tiny_spec())
    with pytest.raises(TrainingError, match="cdk-blackwell vendor") as error:
        check_export_package(exporting)
    assert error.value.kind == "user"

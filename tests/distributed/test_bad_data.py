"""A dataset that cannot be trained on ends the job with status 1 and one line that names it.

From the entrypoint on two ranks to the text of ``output/failure``; the last test goes through the
launcher and torchrun too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import launch
from cdk_blackwell.planning.contracts import ENV_RANK_STATE_DIR
from cdk_blackwell.planning.run_spec import RunSpec
from tests.distributed.forked import fork_ranks
from tests.training_scripts.tiny import tiny_shape, tiny_spec, write_container, write_dataset
from trainer import dataset as dataset_module
from trainer import run as run_module
from trainer.launching.outcome import judge
from trainer.parallel import World
from trainer.rank_state import RankReporter, read_rank_states
from trainer.signals import StopFlag

RANKS = 2
Damage = Callable[[Path], object]


def flip(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def edit_manifest(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "manifest.json"
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))


def nothing(folder: Path) -> None:
    """The dataset is good; what is asked of it is not."""


LONG = 512
"""Longer than a shard of 321 tokens; both shards together hold more."""
CASES: dict[str, tuple[Damage, RunSpec, str]] = {
    "no manifest": (lambda d: (d / "manifest.json").unlink(), tiny_spec(), "does not exist"),
    "manifest of another kind": (
        lambda d: edit_manifest(d, lambda m: m.update(schema_version=9)),
        tiny_spec(),
        "is not a dataset manifest of schema_version 1",
    ),
    "missing shard": (
        lambda d: (d / "train-00001.bin").unlink(),
        tiny_spec(),
        "train-00001.bin is missing",
    ),
    "truncated shard": (
        lambda d: cut(d / "train-00001.bin"),
        tiny_spec(),
        "train-00001.bin is truncated",
    ),
    # The second rank alone reads this shard's checksum.
    "wrong checksum": (
        lambda d: flip(d / "train-00001.bin"),
        tiny_spec(),
        "train-00001.bin is corrupt",
    ),
    "other tokenizer": (
        lambda d: flip(d / "tokenizer.json"),
        tiny_spec(),
        "is not the one the manifest lists",
    ),
    "vocabulary too small": (
        nothing,
        tiny_spec(shape=tiny_shape(vocab_size=32)),
        "the dataset's tokenizer has 64 tokens, but the model's vocab_size is 32",
    ),
    "too few tokens": (
        lambda d: write_dataset(d, sequences=2),
        tiny_spec(
            recipe={"sequence_length": LONG, "global_batch_tokens": LONG * 8},
            shape=tiny_shape(max_position_embeddings=LONG),
        ),
        "the training split holds 34 tokens, less than one sequence of 512",
    ),
    "sequence longer than the shards": (
        nothing,
        tiny_spec(
            recipe={"sequence_length": LONG, "global_batch_tokens": LONG * 8},
            shape=tiny_shape(max_position_embeddings=LONG),
        ),
        "the longest training shard holds 321 tokens",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_failure_is_of_class_data_and_names_what_is_wrong(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dataset_module, "LOCAL_PATIENCE_SECONDS", 0.0)
    damage, spec, words = CASES[name]
    root = write_container(tmp_path / "ml", spec)
    damage(root / "input/data/dataset")
    states = tmp_path / "states"
    states.mkdir()

    def entrypoint(world: World) -> int:
        @contextmanager
        def joined(environment: object) -> Iterator[World]:
            yield world

        environment = {
            "CDKB_ROOT": str(root),
            ENV_RANK_STATE_DIR: str(states),
            "RANK": str(world.rank),
            "LOCAL_RANK": str(world.rank),
        }
        ranks = RankReporter.from_environment(environment)
        with patch.object(run_module, "process_group", joined):
            return run_module.run(
                "small",
                environment,
                ranks=ranks,
                stop=StopFlag(ranks),
                leave=lambda status: status,
            )

    assert fork_ranks(RANKS, entrypoint) == [1] * RANKS
    failure = judge(1, read_rank_states(states), ranks=RANKS, stop_requested=False)
    assert failure is not None
    assert failure.render().startswith("CDKB class=data step=-1 rank=")
    assert words in failure.message
    assert "\n" not in failure.message
    assert not list(root.rglob("step-*")), "nothing was trained"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["wrong checksum", "vocabulary too small"])
def test_the_launcher_ends_with_1_and_the_failure_file_says_why(name: str, tmp_path: Path) -> None:
    damage, spec, words = CASES[name]
    root = write_container(tmp_path, spec)
    damage(root / "input/data/dataset")
    done = subprocess.run(
        [sys.executable, launch.__file__],
        env={**os.environ, "CDKB_ROOT": str(root), "CDKB_PROCESSES_PER_HOST": str(RANKS)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    text = (root / "output/failure").read_text()
    assert text.startswith("CDKB class=data step=-1 rank=")
    assert words in text
    assert done.stderr.splitlines()[-1] == text
    # torchrun prints a traceback of its own, which names no error of ours.
    assert "TrainingError" not in done.stderr

"""Where some tokens do not count, the loss is the mean over those that do, on any number of ranks.

The reference knows nothing of streams, batches and meshes: it reads the files, cuts the step's
sequences by hand and asks torch for the mean cross-entropy.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch.distributed.tensor import DTensor

from cdk_blackwell.planning.run_spec import RunSpec
from tests.distributed.forked import Told, fork_ranks, train_rank, train_ranks
from tests.training_scripts.tiny import (
    GLOBAL_SEQUENCES,
    SEQUENCE_LENGTH,
    tiny_spec,
    write_container,
    write_dataset,
)
from trainer import loop
from trainer.data import shuffled
from trainer.model import Decoder, initialise
from trainer.optimizer import learning_rate, make_optimizer, set_learning_rate
from trainer.parallel import World
from trainer.sharding import clip_gradients

STEPS = 2
TRAIN_SEQUENCES = 40
HALF = TRAIN_SEQUENCES // 2
LAYOUTS: dict[str, dict[str, int]] = {
    "alone": {"shard_gpus": 1},
    "two ranks": {"shard_gpus": 2},
    "context 2": {"shard_gpus": 2, "context_parallel": 2},
    "tensor 2": {"shard_gpus": 1, "tensor_parallel": 2},
    "four ranks": {"shard_gpus": 4},
    "two replicas": {"shard_gpus": 2, "replicas": 2},
    "context 2, tensor 2": {"shard_gpus": 2, "context_parallel": 2, "tensor_parallel": 2},
}

Gradients = list[Any]
Reference = tuple[list[float], list[float], float, Gradients]
"""Losses and gradient norms of all steps, held-out loss at the end, first step's gradients."""


def spec_of(layout: dict[str, int], *, steps: int = STEPS) -> RunSpec:
    return tiny_spec(steps=steps, layout=layout)


def data_of(root: Path) -> Path:
    return root / "input" / "data" / "dataset"


def reference(folder: Path) -> Reference:
    """The same training in plain torch."""
    spec = spec_of({"shard_gpus": 1})
    model = Decoder(spec.model)
    initialise(model, seed=spec.recipe.seed)
    optimizer = make_optimizer(model, spec.recipe.optimizer)

    def read(stem: str, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        here = slice(number * SEQUENCE_LENGTH, (number + 1) * SEQUENCE_LENGTH + 1)
        tokens = np.fromfile(folder / f"{stem}.bin", dtype="<u2")[here].astype(np.int64)
        mask = np.fromfile(folder / f"{stem}.mask", dtype="u1")[here]
        return torch.from_numpy(tokens), torch.from_numpy(mask) != 0

    def mean_loss(rows: list[tuple[torch.Tensor, torch.Tensor]]) -> torch.Tensor:
        tokens = torch.stack([row for row, _ in rows])
        counts = torch.stack([mask for _, mask in rows])[:, 1:]
        logits = model.logits(tokens[:, :-1])
        return F.cross_entropy(logits[counts], tokens[:, 1:][counts])

    losses, norms = [], []
    first: Gradients = []
    for step in range(STEPS):
        at = np.arange(step * GLOBAL_SEQUENCES, (step + 1) * GLOBAL_SEQUENCES)
        numbers = shuffled(at, sequences=TRAIN_SEQUENCES, seed=spec.recipe.seed)
        loss = mean_loss([read(f"train-0000{n // HALF}", n % HALF) for n in numbers.tolist()])
        loss.backward()
        first = first or [p.grad.numpy().copy() for p in model.parameters() if p.grad is not None]
        rate = learning_rate(step + 1, total_steps=STEPS, optimizer=spec.recipe.optimizer)
        set_learning_rate(optimizer, rate)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(loss))
        norms.append(float(norm))
    with torch.no_grad():
        held_out = float(mean_loss([read("validation-00000", number) for number in range(5)]))
    return losses, norms, held_out, first


def trained(world: World, spec: RunSpec, root: Path) -> tuple[Told, Gradients]:
    """What a rank told, and the whole gradients of its first step, before they are clipped."""
    first: Gradients = []

    def note(parameters: Any, *, maximum_norm: float) -> torch.Tensor:
        parameters = list(parameters)
        if not first:
            for parameter in parameters:
                grad = parameter.grad
                whole = grad.full_tensor() if isinstance(grad, DTensor) else grad
                # Clipping changes gradients in place.
                first.append(whole.numpy().copy())
        return clip_gradients(parameters, maximum_norm=maximum_norm)

    with patch.object(loop, "clip_gradients", note):
        return train_rank(world, spec, root), first


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("masked")


@pytest.fixture(scope="module")
def expected(folder: Path) -> Reference:
    write_dataset(folder / "reference", sequences=TRAIN_SEQUENCES, masked=True)
    result: Reference = fork_ranks(1, lambda world: reference(folder / "reference"))[0]
    return result


@pytest.fixture(scope="module")
def runs(folder: Path) -> dict[str, tuple[Told, Gradients]]:
    """Layouts for as many ranks one after the other, since starting ranks is what takes long."""
    for name, layout in LAYOUTS.items():
        root = write_container(folder / name, spec_of(layout))
        write_dataset(data_of(root), sequences=TRAIN_SEQUENCES, masked=True)
    told: dict[str, tuple[Told, Gradients]] = {}
    for count in (1, 2, 4):
        specs = {name: spec_of(layout) for name, layout in LAYOUTS.items()}
        mine = {name: spec for name, spec in specs.items() if spec.layout.gpus == count}

        def train_all(
            world: World, mine: dict[str, RunSpec] = mine
        ) -> dict[str, tuple[Told, Gradients]]:
            return {name: trained(world, spec, folder / name) for name, spec in mine.items()}

        told |= fork_ranks(count, train_all)[0]
    return told


@pytest.mark.parametrize("name", LAYOUTS)
def test_loss_and_gradients_are_means_over_the_targets_that_count(
    name: str, expected: Reference, runs: dict[str, tuple[Told, Gradients]]
) -> None:
    told, gradients = runs[name]
    losses, norms, held_out, first = expected
    assert not told.events("layout_adapted")
    assert list(told.series("loss").values()) == pytest.approx(losses, abs=1e-5)
    assert list(told.series("gradient_norm").values()) == pytest.approx(norms, abs=1e-5)
    assert told.series("validation_loss")[STEPS] == pytest.approx(held_out, abs=1e-5)
    for ours, wanted in zip(gradients, first, strict=True):
        np.testing.assert_allclose(ours, wanted, atol=1e-6)
    # What is counted as trained on is what was read, whether or not it counts in the loss.
    batch = GLOBAL_SEQUENCES * SEQUENCE_LENGTH
    assert list(told.series("tokens").values()) == [batch * n for n in range(1, STEPS + 1)]


def test_a_mask_of_ones_trains_as_no_mask_does(tmp_path: Path) -> None:
    spec = spec_of({"shard_gpus": 1}, steps=2)
    told = []
    for name in ("plain", "masked"):
        root = write_container(tmp_path / name, spec)
        if name == "masked":
            set_masks(data_of(root), 1)
        told.append(train_ranks(1, spec, root)[0])
    plain, masked = told
    for key in ("loss", "gradient_norm", "validation_loss", "tokens"):
        assert masked.series(key) == plain.series(key), key


def test_a_step_and_a_held_out_split_without_any_target_are_no_division_by_zero(
    tmp_path: Path,
) -> None:
    spec = spec_of({"shard_gpus": 2}, steps=2)
    root = write_container(tmp_path, spec)
    set_masks(data_of(root), 0)
    told: Told = train_ranks(2, spec, root)[0]
    assert told.series("loss") == {1: 0.0, 2: 0.0}
    assert told.series("gradient_norm") == {1: 0.0, 2: 0.0}
    assert told.series("validation_loss") == {}


def set_masks(folder: Path, value: int) -> None:
    """Write the dataset with masks of one value only."""
    manifest = write_dataset(folder, masked=True)
    for split, shards in manifest.splits.items():
        changed = []
        for shard in shards:
            data = bytes([value]) * shard.tokens
            (folder / shard.mask_file).write_bytes(data)
            changed.append(replace(shard, mask_sha256=hashlib.sha256(data).hexdigest()))
        manifest.splits[split] = tuple(changed)
    manifest.write(folder)

"""A job's ``initial_weights`` channel: where a run begins, and only where it begins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.planning.run_spec import RunSpec
from tests.distributed.forked import fork_ranks, train_rank, train_ranks
from tests.training_scripts.tiny import VOCABULARY, tiny_shape, tiny_spec, write_container
from trainer.errors import TrainingError
from trainer.parallel import World

EXPORTING = tiny_spec(steps=6, checkpoint={"export": True})


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Weights of a trained run in Hugging Face's format, and their held-out loss."""
    root = write_container(tmp_path_factory.mktemp("trained"), EXPORTING)
    told = train_ranks(2, EXPORTING, root)[0]
    return root / "model", told.series("validation_loss")[6]


def container(folder: Path, spec: RunSpec, weights: Path) -> Path:
    root = write_container(folder, spec)
    (root / "input/data/initial_weights").symlink_to(weights)
    return root


def refusal(spec: RunSpec, root: Path) -> tuple[str, str]:
    def fails(world: World) -> tuple[str, str]:
        try:
            train_rank(world, spec, root)
        except TrainingError as error:
            return error.kind, str(error)
        raise AssertionError("it trained")

    first, second = fork_ranks(2, fails)
    assert first == second
    return str(first[0]), str(first[1])


@pytest.mark.parametrize("precision", ["fp32", "fp8"])
def test_a_run_begins_with_the_channels_weights(
    precision: Any, trained: tuple[Path, float], tmp_path: Path
) -> None:
    weights, loss = trained
    spec = tiny_spec(steps=1, recipe={"precision": precision})
    told = train_ranks(2, spec, container(tmp_path, spec, weights))[0]
    assert told.events("initial_weights")[0]["channel"] == "initial_weights"
    tolerance = 1e-5 if precision == "fp32" else 0.05
    assert told.series("validation_loss")[0] == pytest.approx(loss, abs=tolerance)


def test_a_resumed_run_goes_on_from_its_own_checkpoint(
    trained: tuple[Path, float], tmp_path: Path
) -> None:
    spec = tiny_spec(steps=4)
    root = container(tmp_path, spec, trained[0])
    train_ranks(2, spec, root, sigterm_at={0: 2})
    again = train_ranks(2, spec, root)[0]
    assert again.events("resumed")[0]["step"] == 2
    assert not again.events("initial_weights")


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (tiny_shape(vocab_size=2 * VOCABULARY), ("vocab_size is 64", "128 in run.json")),
        (tiny_shape(num_hidden_layers=3), ("num_hidden_layers is 2", "3 in run.json")),
    ],
    ids=["vocabulary", "layers"],
)
def test_weights_of_another_model_are_refused_by_name(
    shape: Any, words: tuple[str, ...], trained: tuple[Path, float], tmp_path: Path
) -> None:
    spec = tiny_spec(shape=shape)
    kind, message = refusal(spec, container(tmp_path, spec, trained[0]))
    assert kind == "user"
    assert all(word in message for word in words), message


def test_an_empty_channel_is_refused(tmp_path: Path) -> None:
    (tmp_path / "nothing").mkdir()
    spec = tiny_spec()
    kind, message = refusal(spec, container(tmp_path / "ml", spec, tmp_path / "nothing"))
    assert kind == "data"
    assert "holds no safetensors file" in message

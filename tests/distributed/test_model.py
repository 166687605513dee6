"""What is computed does not depend on how memory is saved, and is what transformers computes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from cdk_blackwell.planning.model_shape import ModelShape, RopeScaling
from tests.distributed.forked import cpu_meshes, fork_ranks
from tests.training_scripts.tiny import VOCABULARY, tiny_shape, write_dataset
from trainer.activation_checkpointing import apply_activation_checkpointing
from trainer.export import export
from trainer.model import Decoder, initialise
from trainer.parallel import World
from trainer.sharding import shard

SEED = 5


def tokens(length: int = 17) -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randint(0, VOCABULARY, (2, length), generator=generator)


def loss_and_gradients(mode: str, chunks: int) -> tuple[float, list[list[float]]]:
    def compute(_: World) -> tuple[float, list[list[float]]]:
        model = Decoder(tiny_shape(num_hidden_layers=4), loss_chunks=chunks)
        initialise(model, seed=SEED)
        apply_activation_checkpointing(model, mode)
        batch = tokens()
        loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        gradients = [p.grad.flatten().tolist() for p in model.parameters() if p.grad is not None]
        return float(loss), gradients

    (result,) = fork_ranks(1, compute)
    return result


@pytest.mark.parametrize("mode", ["full", "selective", "every:2"])
def test_activation_checkpointing_is_bit_identical(mode: str) -> None:
    assert loss_and_gradients(mode, 1) == loss_and_gradients("none", 1)


def test_a_loss_in_chunks_is_the_loss() -> None:
    whole, whole_gradients = loss_and_gradients("none", 1)
    pieces, gradients = loss_and_gradients("none", 5)
    assert pieces == pytest.approx(whole, rel=5e-7)
    assert len(gradients) == len(whole_gradients)
    for one, other in zip(gradients, whole_gradients, strict=True):
        assert one == pytest.approx(other, abs=1e-5)


SCALING = RopeScaling(
    factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16
)


@pytest.mark.parametrize(
    ("shape", "maximum_file_bytes"),
    [
        (tiny_shape(), 10**9),
        (tiny_shape(tie_word_embeddings=True), 10**9),
        (tiny_shape(rope_scaling=SCALING, max_position_embeddings=128), 20_000),
    ],
    ids=["untied", "tied", "stretched-in-several-files"],
)
def test_an_export_computes_the_same_in_transformers(
    shape: ModelShape, maximum_file_bytes: int, tmp_path: Path
) -> None:
    dataset = tmp_path / "dataset"
    manifest = write_dataset(dataset)
    folder = tmp_path / "model"

    def save(world: World) -> list[list[list[float]]]:
        model = Decoder(shape)
        shard(model, cpu_meshes(world), "fp32")
        initialise(model, seed=SEED)
        export(
            model,
            folder=folder,
            precision="fp32",
            dataset=dataset,
            manifest=manifest,
            world=world,
            maximum_file_bytes=maximum_file_bytes,
        )
        plain = Decoder(shape)
        initialise(plain, seed=SEED)
        with torch.no_grad():
            return plain.logits(tokens(40)).tolist()

    ours = torch.tensor(fork_ranks(2, save)[0])

    def load(world: World) -> tuple[list[list[list[float]]], str]:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(folder)
        with torch.no_grad():
            return model(tokens(40)).logits.tolist(), tokenizer.eos_token

    ((theirs, end_of_text),) = fork_ranks(1, load)
    torch.testing.assert_close(torch.tensor(theirs), ours, atol=1e-4, rtol=0)
    assert end_of_text == "<|endoftext|>"
    files = list(folder.glob("*.safetensors"))
    assert (len(files) > 1) == (maximum_file_bytes < 10**9)

"""A small model on real text, for the benchmarks that train: the bytes of Python's own sources.

Importing this makes the trainer importable, wherever the script was started from.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "training_scripts"))

import torch.distributed as dist

from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.recipes import default_optimizer
from cdk_blackwell.planning.run_spec import (
    Checkpoint,
    Data,
    Layout,
    Limits,
    Recipe,
    RunSpec,
)
from trainer.container import Container
from trainer.manifest import Manifest, Shard, Tokenizer
from trainer.parallel import CPU, World

END_OF_TEXT: Final = 0
VOCABULARY: Final = 320
"""End-of-text and the 256 bytes, rounded up to a multiple of 64."""
TEXT_BYTES: Final = 4_000_000
HELD_OUT_BYTES: Final = 64_000


def text_tokens() -> np.ndarray[Any, np.dtype[np.uint16]]:
    """The modules of the standard library's top folder by name, one token a byte.

    Which text it is depends on Python's version; its digest tells equal ones.
    """
    folder = Path(sysconfig.get_paths()["stdlib"])
    pieces: list[np.ndarray[Any, Any]] = []
    size = 0
    for path in sorted(folder.glob("*.py")):
        content = np.frombuffer(path.read_bytes(), dtype=np.uint8).astype("<u2") + 1
        pieces += [content, np.array([END_OF_TEXT], dtype="<u2")]
        size += len(content) + 1
        if size >= TEXT_BYTES:
            break
    return np.concatenate(pieces)[:TEXT_BYTES]


def digest(tokens: np.ndarray[Any, Any]) -> str:
    """SHA-256 of the tokens."""
    return hashlib.sha256(tokens.tobytes()).hexdigest()


def write_dataset(folder: Path, tokens: np.ndarray[Any, np.dtype[np.uint16]]) -> None:
    """Shards with a manifest, as ``prepare_data.py`` writes them."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary = {"<|endoftext|>": END_OF_TEXT} | {f"<0x{b:02X}>": b + 1 for b in range(256)}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<|endoftext|>"}
    text = json.dumps({"version": "1.0", "added_tokens": [], "model": model})
    (folder / "tokenizer.json").write_text(text)

    def shard(name: str, part: np.ndarray[Any, Any]) -> Shard:
        (folder / name).write_bytes(part.tobytes())
        return Shard(file=name, tokens=len(part), sha256=digest(part))

    Manifest(
        dtype="uint16",
        tokenizer=Tokenizer(
            file="tokenizer.json",
            vocab_size=257,
            end_of_text_id=END_OF_TEXT,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
        ),
        splits={
            "train": (shard("train-00000.bin", tokens[HELD_OUT_BYTES:]),),
            "validation": (shard("validation-00000.bin", tokens[:HELD_OUT_BYTES]),),
        },
    ).write(folder)


def small_spec(
    *,
    steps: int,
    recipe: Mapping[str, Any],
    hidden_size: int = 128,
    layers: int = 4,
    sequence_length: int = 128,
    sequences: int = 8,
    log_interval_steps: int = 1,
    checkpoint_seconds: float = 1e9,
) -> RunSpec:
    """A run of a Llama-shaped model of half a million to a few million parameters, on one rank."""
    tokens = sequence_length * sequences
    model = ModelShape(
        name="benchmark",
        vocab_size=VOCABULARY,
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=layers,
        num_attention_heads=hidden_size // 32,
        num_key_value_heads=hidden_size // 64,
        head_dim=32,
        max_position_embeddings=sequence_length,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )
    values: dict[str, Any] = {
        "precision": "bf16",
        "sequence_length": sequence_length,
        "global_batch_tokens": tokens,
        "micro_batch_size": sequences,
        "activation_checkpointing": "none",
        "loss_chunks": 1,
        "compile": False,
        "seed": 1,
        "optimizer": replace(default_optimizer(model, train_steps=steps), peak_learning_rate=2e-3),
    }
    return RunSpec(
        schema_version=1,
        run_id="benchmark",
        job="benchmark",
        tier="small",
        model=model,
        recipe=Recipe(**(values | dict(recipe))),
        layout=Layout(shard_gpus=1, replicas=1, context_parallel=1, tensor_parallel=1),
        data=Data(channel="dataset", manifest="manifest.json", validation_sequences=64),
        train_tokens=steps * tokens,
        checkpoint=Checkpoint(interval_seconds=checkpoint_seconds, keep=1, export=False),
        limits=Limits(
            in_cluster_restarts=0,
            log_interval_steps=log_interval_steps,
            validation_interval_steps=steps,
        ),
    )


def container(root: Path, *, dataset: Path) -> Container:
    """SageMaker's tree with the dataset's channel, nothing else of which training reads."""
    channels = root / "input" / "data"
    channels.mkdir(parents=True)
    (channels / "dataset").symlink_to(dataset, target_is_directory=True)
    config = root / "input" / "config"
    config.mkdir()
    (config / "resourceconfig.json").write_text(
        json.dumps({"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"})
    )
    return Container(root=root, checkpoints=root / "checkpoints", run_uri=None, attempt=1)


@contextmanager
def one_rank(store: Path) -> Iterator[World]:
    """This process alone, as rank 0 of one; ``store`` is a file that does not exist yet."""
    os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=0, world_size=1)
    yield World(rank=0, size=1, device=CPU)
    dist.destroy_process_group()

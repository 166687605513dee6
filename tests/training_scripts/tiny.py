"""A run small enough for a test: one real model, one real dataset, seconds on one core."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

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
from trainer.manifest import Manifest, Shard, Tokenizer

VOCABULARY = 64
SEQUENCE_LENGTH = 16
GLOBAL_SEQUENCES = 8


def tiny_shape(**changes: Any) -> ModelShape:
    """Grouped-query attention, two layers, a few thousand parameters."""
    shape = ModelShape(
        name="tiny",
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=SEQUENCE_LENGTH,
        rope_theta=10_000.0,
        rms_norm_eps=1e-5,
        tie_word_embeddings=False,
    )
    return replace(shape, **changes)


def tiny_spec(
    *,
    steps: int = 6,
    shape: ModelShape | None = None,
    recipe: dict[str, Any] | None = None,
    layout: dict[str, Any] | None = None,
    checkpoint: dict[str, Any] | None = None,
    limits: dict[str, Any] | None = None,
    **changes: Any,
) -> RunSpec:
    """A whole ``run.json``; every part can be changed."""
    tokens = GLOBAL_SEQUENCES * SEQUENCE_LENGTH
    model = shape or tiny_shape()
    spec = RunSpec(
        schema_version=1,
        run_id="tiny",
        job="test",
        tier="small",
        model=model,
        recipe=replace(
            Recipe(
                precision="fp32",
                sequence_length=SEQUENCE_LENGTH,
                global_batch_tokens=tokens,
                micro_batch_size=2,
                activation_checkpointing="none",
                loss_chunks=2,
                compile=False,
                seed=7,
                optimizer=replace(
                    default_optimizer(model, train_steps=20), peak_learning_rate=1e-2
                ),
            ),
            **(recipe or {}),
        ),
        layout=replace(
            Layout(shard_gpus=8, replicas=1, context_parallel=1, tensor_parallel=1),
            **(layout or {}),
        ),
        data=Data(channel="dataset", manifest="manifest.json", validation_sequences=6),
        train_tokens=steps * tokens,
        checkpoint=replace(
            Checkpoint(interval_seconds=3600.0, keep=2, export=False), **(checkpoint or {})
        ),
        limits=replace(
            Limits(in_cluster_restarts=0, log_interval_steps=1, validation_interval_steps=3),
            **(limits or {}),
        ),
    )
    return replace(spec, **changes)


TOKENIZER = {
    "version": "1.0",
    "added_tokens": [
        {
            "id": 0,
            "content": "<|endoftext|>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "normalizer": None,
    "pre_tokenizer": None,
    "post_processor": None,
    "decoder": None,
    "truncation": None,
    "padding": None,
    "model": {
        "type": "WordLevel",
        "vocab": {"<|endoftext|>": 0} | {f"w{i}": i for i in range(1, VOCABULARY)},
        "unk_token": "<|endoftext|>",
    },
}


def write_dataset(
    folder: Path,
    *,
    sequences: int = 40,
    held_out: int = 5,
    vocabulary: int = VOCABULARY,
    masked: bool = False,
) -> Manifest:
    """Learnable tokens, each near the one before: two training shards and one held out.

    Masked, every sequence has another share of tokens that count in the loss; some have none.
    """
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(TOKENIZER)
    (folder / "tokenizer.json").write_text(text)
    random, masks = np.random.default_rng(0), np.random.default_rng(1)

    def shard(name: str, count: int) -> Shard:
        steps = random.integers(1, 4, size=count * SEQUENCE_LENGTH + 1)
        data = (np.cumsum(steps) % vocabulary).astype("<u2").tobytes()
        (folder / name).write_bytes(data)
        shard = Shard(file=name, tokens=len(data) // 2, sha256=hashlib.sha256(data).hexdigest())
        if not masked:
            return shard
        shares = np.repeat(np.linspace(0, 1, count), SEQUENCE_LENGTH)
        mask = np.append(masks.random(shares.size) < shares, True).astype("u1").tobytes()
        (folder / shard.mask_file).write_bytes(mask)
        return replace(shard, mask_sha256=hashlib.sha256(mask).hexdigest())

    manifest = Manifest(
        dtype="uint16",
        tokenizer=Tokenizer(
            file="tokenizer.json",
            vocab_size=vocabulary,
            end_of_text_id=0,
            sha256=hashlib.sha256(text.encode()).hexdigest(),
        ),
        splits={
            "train": (
                shard("train-00000.bin", sequences // 2),
                shard("train-00001.bin", sequences - sequences // 2),
            ),
            "validation": (shard("validation-00000.bin", held_out),),
        },
    )
    manifest.write(folder)
    return manifest


def write_container(root: Path, spec: RunSpec, *, hosts: tuple[str, ...] = ("algo-1",)) -> Path:
    """SageMaker's tree below ``root`` for a run, with a dataset."""
    config = root / "input" / "config"
    config.mkdir(parents=True, exist_ok=True)
    (config / "resourceconfig.json").write_text(
        json.dumps(
            {
                "current_host": hosts[0],
                "hosts": list(hosts),
                "network_interface_name": "eth0",
            }
        )
    )
    run = root / "input" / "data" / "config" / "run.json"
    run.parent.mkdir(parents=True, exist_ok=True)
    run.write_text(spec.to_json())
    dataset = root / "input" / "data" / "dataset"
    if not dataset.exists():
        write_dataset(dataset)
    return root

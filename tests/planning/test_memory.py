"""Predicted memory against runs of the real training step under PyTorch's FSDP memory tracker.

``data/memory_oracle.jsonl`` was produced on CPU with a fake process group, plain operations,
embedding and head in FSDP groups of their own and per-parameter AdamW.
``data/published_runs.csv`` holds published numbers of other stacks, each with its source.
"""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.planning.memory import MemoryEstimate, estimate_memory
from cdk_blackwell.planning.model_shape import ModelShape

LLAMA_7B = ModelShape.preset("llama-2-7b")
LLAMA_8B = ModelShape.preset("llama-3.1-8b")
DATA = Path(__file__).with_name("data")

ORACLE = [
    json.loads(line) for line in (DATA / "memory_oracle.jsonl").read_text().splitlines() if line
]
TRACKER_ARTEFACT = [point for point in ORACLE if "UNSHARDED_PARAM" not in point["parts_gib"]]
"""The peak lies in the optimizer step, where the tracker counts temporaries that are dead.

They sit in reference cycles until Python's garbage collector runs, so the number differs from run
to run (3.1 and 4.0 GiB for one and the same small case); the backward pass before it is the peak.
"""
PUBLISHED = [
    row
    for row in csv.DictReader((DATA / "published_runs.csv").open())
    if row["model"] == "llama-3-8b" and row["reserved_gib"]
]


def oracle_error(point: dict[str, Any]) -> float:
    shape = point["model"]
    model = ModelShape(
        name="oracle",
        head_dim=shape["hidden_size"] // shape["num_attention_heads"],
        max_position_embeddings=131_072,
        rope_theta=1e4,
        rms_norm_eps=1e-5,
        **shape,
    )
    predicted = estimate_memory(
        model,
        tokens=point["micro_batch_size"] * point["sequence_length"],
        sequence_length=point["sequence_length"],
        shard_gpus=point["gpus"] // point["replicas"],
        activation_checkpointing=point["activation_checkpointing"],
        loss_chunks=point["loss_chunks"],
        torchtitan_layout=True,
    )
    return predicted.allocated_gib / point["peak_gib"] - 1


@pytest.mark.parametrize("point", [p for p in ORACLE if p not in TRACKER_ARTEFACT])
def test_allocated_memory_is_the_oracles_within_a_thousandth(point: dict[str, Any]) -> None:
    assert abs(oracle_error(point)) < 0.001


def test_the_optimizer_steps_artefact_stays_within_4_percent() -> None:
    assert len(TRACKER_ARTEFACT) == 1
    assert abs(oracle_error(TRACKER_ARTEFACT[0])) < 0.04


def test_allocated_memory_is_within_a_fifth_of_a_percent_on_average() -> None:
    assert statistics.mean(abs(oracle_error(point)) for point in ORACLE) < 0.002


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row['accelerator']}-{row['gpus']}")
def test_reserved_memory_is_published_memory_or_somewhat_more(row: dict[str, str]) -> None:
    context_parallel = 4 if "cp4" in row["layout"] else 1
    length = int(row["sequence_length"])
    predicted = estimate_memory(
        LLAMA_8B,
        tokens=length * int(row["micro_batch_size"]) // context_parallel,
        sequence_length=length,
        shard_gpus=int(row["shard_gpus"]),
        activation_checkpointing=row["activation_checkpointing"],
        loss_chunks=1,
        compiled=row["compiled"] == "yes",
        torchtitan_layout=True,
        logit_bytes=float(row["logit_bytes"]),
    )
    # The newest rows (B200) hold hardly more than what is allocated; the bound stays an upper one.
    most = 1.25 if row["accelerator"] == "B200" else 1.15
    assert 0.95 <= predicted.reserved_gib / float(row["reserved_gib"]) <= most


def predict(
    model: ModelShape = LLAMA_7B,
    *,
    tokens: int = 8192,
    shard_gpus: int = 8,
    activation_checkpointing: str = "none",
    loss_chunks: int = 8,
    **others: Any,
) -> MemoryEstimate:
    return estimate_memory(
        model,
        tokens=tokens,
        sequence_length=4096,
        shard_gpus=shard_gpus,
        activation_checkpointing=activation_checkpointing,
        loss_chunks=loss_chunks,
        **others,
    )


def test_128k_tokens_fit_an_8b_model_without_offloading_to_the_cpu() -> None:
    memory = predict(LLAMA_8B, tokens=131_072, activation_checkpointing="full", loss_chunks=32)
    assert memory.fits
    assert memory.allocated_gib == pytest.approx(76, abs=4)


def test_the_budget_is_92_percent_of_visible_memory_less_what_lies_outside_torch() -> None:
    memory = predict(tokens=4096)
    assert memory.budget_gib == pytest.approx(161.6, abs=0.05)
    assert sum(memory.parts_gib.values()) == pytest.approx(memory.reserved_gib)


def test_fp32_saves_twice_as_much_as_bf16() -> None:
    bf16, fp32 = predict(), predict(precision="fp32")
    ratio = fp32.parts_gib["activations"] / bf16.parts_gib["activations"]
    assert ratio == pytest.approx(2, rel=0.01)


def test_accumulation_keeps_sharded_gradients_through_the_step() -> None:
    more = predict(accumulates=True).allocated_gib - predict().allocated_gib
    assert 0 < more <= 4 * LLAMA_7B.parameter_count / 8 / 2**30


CHECKPOINTING = st.sampled_from(["none", "selective", "full", "every:2", "every:3"])
SETTINGS = st.fixed_dictionaries(
    {
        "activation_checkpointing": CHECKPOINTING,
        "loss_chunks": st.integers(1, 64),
        "compiled": st.booleans(),
        "accumulates": st.booleans(),
        "torchtitan_layout": st.booleans(),
        "foreach_optimizer": st.booleans(),
        "precision": st.sampled_from(["bf16", "fp32"]),
    }
)


@given(
    tokens=st.integers(1, 1 << 20),
    more=st.integers(0, 1 << 20),
    shards=st.sampled_from([1, 2, 4, 8, 16]),
    settings=SETTINGS,
)
def test_memory_never_falls_with_tokens_nor_rises_with_shards(
    tokens: int, more: int, shards: int, settings: dict[str, Any]
) -> None:
    base = predict(tokens=tokens, shard_gpus=shards, **settings)
    longer = predict(tokens=tokens + more, shard_gpus=shards, **settings)
    wider = predict(tokens=tokens, shard_gpus=2 * shards, **settings)
    assert longer.reserved_gib >= base.reserved_gib
    assert longer.allocated_gib >= base.allocated_gib
    assert wider.reserved_gib <= base.reserved_gib
    assert wider.allocated_gib <= base.allocated_gib


@given(layers=st.integers(1, 60), vocabulary=st.integers(1000, 200_000), settings=SETTINGS)
def test_memory_never_falls_with_layers_or_vocabulary(
    layers: int, vocabulary: int, settings: dict[str, Any]
) -> None:
    from dataclasses import replace

    shape = replace(LLAMA_7B, num_hidden_layers=layers, vocab_size=vocabulary)
    base = predict(shape, **settings).reserved_gib
    assert predict(replace(shape, num_hidden_layers=layers + 1), **settings).reserved_gib >= base
    assert predict(replace(shape, vocab_size=vocabulary + 64), **settings).reserved_gib >= base


@given(tokens=st.integers(1, 1 << 20), settings=SETTINGS)
def test_what_is_held_is_never_less_than_what_is_alive(
    tokens: int, settings: dict[str, Any]
) -> None:
    memory = predict(tokens=tokens, **settings)
    assert memory.reserved_gib >= memory.allocated_gib * (1 - 1e-12)


@given(tokens=st.integers(1, 1 << 20), compiled=st.booleans())
def test_more_checkpointing_never_keeps_more(tokens: int, compiled: bool) -> None:
    kept = [
        predict(tokens=tokens, activation_checkpointing=mode, compiled=compiled).parts_gib[
            "activations"
        ]
        for mode in ("none", "every:4", "every:2", "full")
    ]
    assert kept == sorted(kept, reverse=True)

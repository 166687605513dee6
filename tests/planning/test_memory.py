"""Predicted memory against runs of the real training step under PyTorch's FSDP memory tracker.

The points were produced on CPU with a fake process group, plain operations and per-parameter
AdamW (``compiled=False``).
"""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.planning.memory import estimate_memory
from cdk_blackwell.planning.model_shape import ModelShape

LLAMA_7B = ModelShape.preset("llama-2-7b")
LLAMA_8B = ModelShape.preset("llama-3.1-8b")

ORACLE = [
    # model, GPUs, tokens per GPU, activation checkpointing, loss chunks, peak allocated GiB
    (LLAMA_7B, 8, 4096, "none", 8, 29.798),
    (LLAMA_7B, 8, 4096, "selective", 8, 19.230),
    (LLAMA_7B, 8, 4096, "full", 8, 14.713),
    (LLAMA_7B, 8, 4096, "every:2", 8, 21.242),
    (LLAMA_7B, 8, 4096, "every:4", 8, 25.356),
    (LLAMA_7B, 8, 4 * 8192, "full", 8, 25.007),
    (LLAMA_7B, 8, 4 * 4096, "selective", 8, 43.950),
    (LLAMA_8B, 8, 2 * 8192, "none", 8, 98.615),
    (LLAMA_8B, 8, 2 * 8192, "none", 1, 118.060),
    (LLAMA_8B, 8, 2 * 8192, "selective", 8, 48.186),
    (LLAMA_8B, 8, 2 * 8192, "full", 8, 21.844),
    (LLAMA_8B, 8, 2 * 8192, "full", 1, 39.994),
]


def relative_error(point: tuple[ModelShape, int, int, str, int, float]) -> float:
    model, gpus, tokens, checkpointing, chunks, measured = point
    predicted = estimate_memory(
        model,
        tokens=tokens,
        shard_gpus=gpus,
        activation_checkpointing=checkpointing,
        loss_chunks=chunks,
    )
    return predicted.allocated_gib / measured - 1


@pytest.mark.parametrize("point", ORACLE)
def test_no_prediction_is_low_by_more_than_2_percent_or_high_by_more_than_8(
    point: tuple[ModelShape, int, int, str, int, float],
) -> None:
    assert -0.02 <= relative_error(point) <= 0.08


def test_predictions_are_within_3_percent_on_average() -> None:
    assert statistics.mean(abs(relative_error(point)) for point in ORACLE) <= 0.03


def test_128k_tokens_fit_an_8b_model_without_offloading_to_the_cpu() -> None:
    memory = estimate_memory(
        LLAMA_8B,
        tokens=131_072,
        shard_gpus=8,
        activation_checkpointing="full",
        loss_chunks=32,
    )
    assert memory.fits
    assert memory.allocated_gib == pytest.approx(74.9, rel=0.12)


def test_the_budget_is_92_percent_of_visible_memory_less_what_lies_outside_torch() -> None:
    memory = estimate_memory(
        LLAMA_7B, tokens=1, shard_gpus=8, activation_checkpointing="none", loss_chunks=1
    )
    assert memory.budget_gib == pytest.approx(161.6, abs=0.05)
    assert sum(memory.parts_gib.values()) == pytest.approx(memory.reserved_gib)


CHECKPOINTING = st.sampled_from(["none", "selective", "full", "every:2", "every:3"])


@given(
    tokens=st.integers(1, 1 << 20),
    more=st.integers(0, 1 << 20),
    shards=st.sampled_from([1, 2, 4, 8, 16]),
    checkpointing=CHECKPOINTING,
    chunks=st.integers(1, 64),
    compiled=st.booleans(),
)
def test_memory_never_falls_with_tokens_nor_rises_with_shards(
    tokens: int, more: int, shards: int, checkpointing: str, chunks: int, compiled: bool
) -> None:
    def predict(tokens: int, shards: int) -> float:
        return estimate_memory(
            LLAMA_7B,
            tokens=tokens,
            shard_gpus=shards,
            activation_checkpointing=checkpointing,
            loss_chunks=chunks,
            compiled=compiled,
        ).reserved_gib

    assert predict(tokens + more, shards) >= predict(tokens, shards)
    assert predict(tokens, 2 * shards) <= predict(tokens, shards)


@given(tokens=st.integers(1, 1 << 20), compiled=st.booleans())
def test_more_checkpointing_never_keeps_more(tokens: int, compiled: bool) -> None:
    kept = [
        estimate_memory(
            LLAMA_7B,
            tokens=tokens,
            shard_gpus=8,
            activation_checkpointing=checkpointing,
            loss_chunks=8,
            compiled=compiled,
        ).parts_gib["activations"]
        for checkpointing in ("none", "every:4", "every:2", "full")
    ]
    assert kept == sorted(kept, reverse=True)

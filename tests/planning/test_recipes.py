"""What each tier makes of batch, precision and checkpointing, and the defaults behind it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import Plan, make_plan
from cdk_blackwell.planning.predictions import predict_memory
from cdk_blackwell.planning.recipes import (
    GLOBAL_BATCH_TOKENS,
    LARGEST_DEFAULT_BATCH_TOKENS,
    RecipeOverrides,
    default_global_batch_tokens,
    default_loss_chunks,
    default_optimizer,
)
from cdk_blackwell.planning.tiers import MID, block_ladder

MIDDLE = ("llama-3.1-8b", "llama-2-13b", "qwen3-14b", "mistral-small-24b")


def planned(model: str, sequence_length: int, **more: Any) -> Plan:
    return make_plan(model=ModelShape.preset(model), sequence_length=sequence_length, **more)


@given(
    model=st.sampled_from(MIDDLE),
    sequence_length=st.sampled_from([1024, 3072, 8192, 16_384, 131_072]),
    instance_count=st.sampled_from([None, 1, 2, 4]),
    sequences=st.sampled_from([None, 96, 128, 240]),
)
@settings(deadline=None, max_examples=40)
def test_the_mid_tiers_growth_are_divisors_that_keep_the_global_batch_and_fit(
    model: str, sequence_length: int, instance_count: int | None, sequences: int | None
) -> None:
    batch = None if sequences is None else sequences * 8 * 4 * sequence_length
    plan = planned(model, sequence_length, instance_count=instance_count, global_batch_tokens=batch)
    recipe, layout = plan.recipe, plan.layout
    assert batch is None or recipe.global_batch_tokens == batch
    share, rest = divmod(recipe.global_batch_tokens, sequence_length * layout.data_parallel)
    assert rest == 0
    sizes = (recipe.micro_batch_size, *recipe.batch_growth)
    assert all(share % size == 0 for size in sizes)
    assert all(smaller < larger for smaller, larger in pairwise(sizes))
    for size in sizes:
        grown = replace(recipe, micro_batch_size=size, batch_growth=())
        assert predict_memory(plan.model, layout, grown).fits
    smallest = sizes[0] == 1
    assert smallest or plan.memory.reserved_gib <= MID.start_fraction * plan.memory.budget_gib


def test_the_other_tiers_start_with_what_fits() -> None:
    for model in ("llama-2-7b", "llama-3-64b"):
        assert planned(model, 4096).recipe.batch_growth == ()


@pytest.mark.parametrize(
    ("model", "precision", "checkpointing"),
    [
        ("llama-3.2-3b", "bf16", {"none"}),
        ("llama-2-7b", "bf16", {"none"}),
        ("llama-3.1-8b", "fp8", {"selective", "every:2", "full"}),
        ("mistral-small-24b", "fp8", {"selective", "every:2", "full"}),
        ("yi-34b", "fp8", {"selective", "every:2", "full"}),
        ("llama-3-64b", "fp8", {"selective", "every:2", "full"}),
    ],
)
def test_precision_and_checkpointing_follow_the_tier(
    model: str, precision: str, checkpointing: set[str]
) -> None:
    recipe = planned(model, 4096).recipe
    assert recipe.precision == precision
    assert recipe.activation_checkpointing in checkpointing


def test_a_small_model_checkpoints_as_few_blocks_as_memory_asks_for() -> None:
    assert block_ladder(8) == ("every:8", "every:4", "every:3", "every:2")
    assert block_ladder(1) == ()


def test_fixing_the_batch_keeps_it_and_only_one_size_is_left() -> None:
    recipe = planned("llama-3.1-8b", 8192, overrides=RecipeOverrides(micro_batch_size=1)).recipe
    assert (recipe.micro_batch_size, recipe.batch_growth) == (1, ())


def test_the_default_batch_is_that_of_llama_2_and_holds_whole_sequences() -> None:
    for length in (512, 4096, 8192, 131_072):
        for gpus in (8, 16, 64, 512):
            batch = default_global_batch_tokens(
                sequence_length=length, gpus=gpus, context_parallel=None
            )
            assert batch % length == 0
            assert GLOBAL_BATCH_TOKENS / 2 <= batch <= LARGEST_DEFAULT_BATCH_TOKENS


def test_pieces_of_the_loss_keep_fp32_logits_near_2_gib() -> None:
    llama = ModelShape.preset("llama-3.1-8b")
    for tokens in (512, 4096, 16_384, 131_072):
        pieces = default_loss_chunks(llama, tokens=tokens)
        assert pieces & (pieces - 1) == 0
        assert tokens * llama.vocab_size * 4 / pieces <= 2 * 1024**3
        assert pieces == 1 or tokens * llama.vocab_size * 4 / pieces > 1024**3


@pytest.mark.parametrize(
    ("model", "rate"),
    [("llama-2-7b", 3e-4), ("llama-3.1-8b", 3e-4), ("qwen2.5-0.5b", 1e-3), ("llama-3-64b", 1.5e-4)],
)
def test_the_peak_learning_rate_falls_with_width(model: str, rate: float) -> None:
    optimizer = default_optimizer(ModelShape.preset(model), train_steps=100_000)
    assert optimizer.peak_learning_rate == pytest.approx(rate)
    assert optimizer.warmup_steps == 2000
    short = default_optimizer(ModelShape.preset(model), train_steps=50)
    assert short.warmup_steps == 5

"""The roofline: phases by hand, what bounds a step, and what can only make it faster."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.planning.efficiency import efficiency_for
from cdk_blackwell.planning.flops import block_weights, flops_per_token, recomputation
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.step_time import micro_batches
from cdk_blackwell.planning.throughput import default_efficiency
from tests.planning.speed_cases import LLAMA_8B, a_layout, a_recipe, speed

VALUES = default_efficiency().values
N = LLAMA_8B.parameter_count
BLOCKS = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14_336)
HEAD = 128_256 * 4096
PEAK = 2250e12
HBM = 8e12 * VALUES.hbm


def test_phases_add_up_to_the_step_and_the_step_to_the_speed() -> None:
    found = speed(a_layout(16), micro_batches=4, micro_batch_size=2)
    assert sum(found.phases.values()) == pytest.approx(found.step_seconds)
    assert found.micro_batches == 4
    tokens_per_gpu = 4 * 2 * 8192
    assert found.tokens_per_second_per_gpu == pytest.approx(tokens_per_gpu / found.step_seconds)


def test_matrix_products_take_six_flops_per_weight_and_token() -> None:
    found = speed(a_layout())
    assert found.phases["matmul"] == pytest.approx(
        6 * (BLOCKS + HEAD) * 8192 / (PEAK * VALUES.matmul["bf16"])
    )


def test_the_head_stays_bf16_when_blocks_are_fp8() -> None:
    found = speed(a_layout(), precision="fp8")
    blocks = 6 * BLOCKS * 8192 / (2 * PEAK * VALUES.matmul["fp8"])
    head = 6 * HEAD * 8192 / (PEAK * VALUES.matmul["bf16"])
    assert found.phases["matmul"] == pytest.approx(blocks + head)


def test_attention_is_causal_and_its_backward_computes_scores_again() -> None:
    forward = 32 * 2 * 4096 * 8192 * 8192
    found = speed(a_layout())
    assert found.phases["attention"] == pytest.approx(3.5 * forward / (PEAK * VALUES.attention))


def test_the_optimizer_touches_its_shard_once() -> None:
    assert speed(a_layout(8)).phases["optimizer"] == pytest.approx(40 * N / 8 / HBM)
    assert speed(a_layout(64)).phases["optimizer"] == pytest.approx(40 * N / 64 / HBM)


@pytest.mark.parametrize(
    ("mode", "weights"),
    [
        ("none", 0.0),
        ("selective", 4096 * (1024 + 4096 + 14_336)),
        ("full", BLOCKS / 32),
        ("every:2", BLOCKS / 64),
        # Blocks 0, 5, ... 30 of 32.
        ("every:5", BLOCKS / 32 * 7 / 32),
    ],
)
def test_checkpointing_repeats_what_it_did_not_keep(mode: str, weights: float) -> None:
    assert recomputation(LLAMA_8B, mode).weights == pytest.approx(weights)


def test_full_checkpointing_adds_a_forward_pass_to_hfu_and_nothing_to_mfu() -> None:
    full = speed(a_layout(), activation_checkpointing="full")
    model_flops = 3 * (2 * (BLOCKS + HEAD) + 32 * 2 * 4096 * 8192)
    repeated = 2 * BLOCKS + 32 * 2 * 4096 * 8192
    assert full.hfu / full.mfu == pytest.approx((model_flops + repeated) / model_flops, rel=1e-3)


def test_a_loss_in_chunks_multiplies_nothing_twice() -> None:
    """The trainer makes a piece's gradients together with its logits (``trainer.head``)."""
    once, chunked = speed(a_layout()), speed(a_layout(), loss_chunks=8)
    assert chunked.phases["matmul"] == once.phases["matmul"]
    assert chunked.hfu == pytest.approx(once.hfu)


def test_hidden_and_exposed_communication_are_all_of_it() -> None:
    found = speed(a_layout())
    seconds = 8 * N * 7 / 8 / (900e9 * VALUES.nvlink)
    exposed = found.phases["weights_and_gradients"]
    assert exposed + found.hidden_seconds == pytest.approx(seconds)
    assert exposed == pytest.approx((1 - VALUES.overlap) * seconds)


def test_what_computation_is_too_short_to_hide_is_exposed() -> None:
    found = speed(a_layout(64), sequence_length=512)
    computation = sum(found.phases[name] for name in ("matmul", "attention", "elementwise"))
    assert found.hidden_seconds == pytest.approx(VALUES.overlap * computation)
    assert found.bound == "interconnect"


def test_efa_hides_from_some_thousand_tokens_on() -> None:
    """Published: 2.6 to 4.9 thousand tokens per GPU break even for well tuned kernels."""
    fast = efficiency_for("megatron_high", "B200").values

    def ratio(tokens: int) -> float:
        computation = flops_per_token(LLAMA_8B, 8192) * tokens / (PEAK * fast.matmul["bf16"])
        return (8 * N / 8 * 63 / 64 / (50e9 * fast.fabric)) / computation

    assert ratio(8192) < 1 < ratio(2600)


def test_kept_weights_are_gathered_once_and_accumulated_gradients_reduced_once() -> None:
    gather, reduce = 2 * N * 7 / 8 / 1e9, 4 * N * 7 / 8 / 1e9
    plain = speed(a_layout(), micro_batches=8)
    kept = speed(a_layout(reshard_after_forward=False), micro_batches=8)
    both = speed(a_layout(reshard_after_forward=False, gradient_sync="step"), micro_batches=8)
    assert plain.nvlink_gb == pytest.approx(8 * (2 * gather + reduce))
    assert kept.nvlink_gb == pytest.approx(gather + 8 * reduce)
    assert both.nvlink_gb == pytest.approx(gather + reduce)


def test_a_tiny_model_waits_for_the_host_and_says_so() -> None:
    tiny = replace(
        LLAMA_8B, hidden_size=256, intermediate_size=512, head_dim=8, vocab_size=4096, name="tiny"
    )
    found = speed(a_layout(), model=tiny, sequence_length=256)
    assert found.phases["launch"] > 0.5 * found.step_seconds
    assert any("waits for the host" in line for line in found.assumptions)
    # More tokens per launch are free until the GPU is busy.
    more = speed(a_layout(), model=tiny, sequence_length=512)
    assert more.tokens_per_second_per_gpu > 1.9 * found.tokens_per_second_per_gpu
    assert speed(a_layout()).phases["launch"] == 0


def test_narrow_matrices_are_bound_by_memory() -> None:
    narrow = replace(LLAMA_8B, hidden_size=64, intermediate_size=64, head_dim=2)
    arithmetic = 6 * 32 * block_weights(narrow) * 8192 / (PEAK * VALUES.matmul["bf16"])
    assert speed(a_layout(), model=narrow).phases["matmul"] > 2 * arithmetic


def test_context_parallelism_costs_what_it_exchanges() -> None:
    long: dict[str, Any] = {"sequence_length": 131_072, "activation_checkpointing": "full"}
    assert speed(a_layout(), **long).phases["context_parallel"] == 0
    ulysses = speed(a_layout(context_parallel=8, ulysses=8), **long)
    gathered = speed(a_layout(context_parallel=8), **long)
    assert ulysses.phases["context_parallel"] > 0
    assert ulysses.phases["attention"] < gathered.phases["attention"]


@pytest.mark.parametrize(
    ("ulysses", "mode", "compiled", "passes"),
    [
        (8, "none", True, 2),  # there and, of gradients, back
        (8, "selective", True, 3),
        (8, "full", True, 3),
        (1, "none", True, 3),  # forward, backward, and the sum of gradients
        (1, "selective", True, 3),  # kept whole
        (1, "selective", False, 4),
        (1, "full", True, 4),
    ],
)
def test_shared_sequences_are_exchanged_once_per_pass(
    ulysses: int, mode: str, compiled: bool, passes: int
) -> None:
    layout = a_layout(context_parallel=8, ulysses=ulysses)
    tokens, q, k = 131_072 / 8, 4096, 1024
    one_pass = 2 * tokens * ((2 * q + 2 * k) * 7 / 8 if ulysses == 8 else 2 * k * 7)
    found = speed(
        layout, sequence_length=131_072, activation_checkpointing=mode, compile=compiled
    ).phases["context_parallel"]
    assert found == pytest.approx(32 * passes * one_pass / (900e9 * VALUES.nvlink))


def test_assumptions_name_their_sources_and_how_much_overlaps() -> None:
    text = " ".join(speed(a_layout()).assumptions)
    assert "published by torchao; not measured by this project" in text
    assert "80% of FSDP and HSDP communication hides" in text


@pytest.mark.parametrize(("stack", "accelerator"), [("jax", "B200"), ("fsdp2", "V100")])
def test_an_unknown_stack_or_accelerator_is_refused_with_the_known(
    stack: str, accelerator: str
) -> None:
    with pytest.raises(ValueError, match=r"megatron_low|GB200"):
        efficiency_for(stack, accelerator)


def test_accumulation_rounds_up() -> None:
    layout = a_layout()
    recipe = a_recipe(layout, micro_batches=3)
    assert micro_batches(layout, recipe) == 3
    assert micro_batches(layout, replace(recipe, micro_batch_size=2)) == 2


LAYOUTS = st.builds(
    a_layout,
    st.sampled_from([8, 16, 64]),
    replicas=st.sampled_from([1, 4]),
    context_parallel=st.sampled_from([1, 2, 8]),
    tensor_parallel=st.sampled_from([1, 2]),
    reshard_after_forward=st.booleans(),
    gradient_sync=st.sampled_from(["micro_batch", "step"]),
)
RECIPES = st.fixed_dictionaries(
    {
        "micro_batch_size": st.sampled_from([1, 4]),
        "micro_batches": st.sampled_from([1, 2, 16]),
        "activation_checkpointing": st.sampled_from(["none", "selective", "full", "every:3"]),
        "precision": st.sampled_from(["bf16", "fp32", "fp8", "fp8_rowwise", "mxfp8"]),
        "compile": st.booleans(),
        "sequence_length": st.sampled_from([512, 8192, 131_072]),
    }
)
MODELS = st.sampled_from([LLAMA_8B, ModelShape.preset("llama-3.2-1b")])
RATES = (
    "hbm_bytes_per_second",
    "nvlink_bytes_per_second",
    "fabric_bytes_per_second",
)


@given(layout=LAYOUTS, recipe=RECIPES, model=MODELS, rate=st.sampled_from(RATES))
def test_more_bandwidth_is_never_slower(
    layout: Any, recipe: dict[str, Any], model: ModelShape, rate: str
) -> None:
    faster = replace(P6_B200, **{rate: 2 * getattr(P6_B200, rate)})
    before = speed(layout, model=model, **recipe)
    after = speed(layout, model=model, node=faster, **recipe)
    assert after.tokens_per_second_per_gpu >= before.tokens_per_second_per_gpu * (1 - 1e-9)


@given(layout=LAYOUTS, recipe=RECIPES, model=MODELS)
def test_less_recomputation_is_never_slower(
    layout: Any, recipe: dict[str, Any], model: ModelShape
) -> None:
    ladder = ["none", "selective", "full"]
    speeds = [
        speed(
            layout, model=model, **{**recipe, "activation_checkpointing": mode}
        ).tokens_per_second_per_gpu
        for mode in ladder
    ]
    # Where the host is waited for they are equal, up to rounding.
    assert all(less >= more * (1 - 1e-9) for less, more in pairwise(speeds))


@given(layout=LAYOUTS, recipe=RECIPES, model=MODELS)
def test_kept_weights_are_never_slower(
    layout: Any, recipe: dict[str, Any], model: ModelShape
) -> None:
    kept = speed(replace(layout, reshard_after_forward=False), model=model, **recipe)
    freed = speed(replace(layout, reshard_after_forward=True), model=model, **recipe)
    assert kept.tokens_per_second_per_gpu >= freed.tokens_per_second_per_gpu * (1 - 1e-9)


@given(layout=LAYOUTS, recipe=RECIPES, model=MODELS)
def test_utilisation_stays_below_the_assumed_shares_of_peak(
    layout: Any, recipe: dict[str, Any], model: ModelShape
) -> None:
    found = speed(layout, model=model, **recipe)
    best = max(VALUES.attention, *VALUES.matmul.values())
    # The conventions also count the weights of norms, which no product multiplies.
    assert 0 < found.mfu <= found.hfu * (1 + 1e-12)
    assert found.hfu <= best
    assert all(seconds >= 0 for seconds in found.phases.values())

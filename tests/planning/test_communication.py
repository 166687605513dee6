"""Bytes over NVLink and EFA, computed by hand for small groups and against the published rules."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.planning.communication import (
    all_gather,
    all_to_all,
    context_exchange,
    gradient_reduce_scatter,
    replica_all_reduce,
    tensor_exchange,
    weight_gather,
)
from tests.planning.speed_cases import LLAMA_8B, a_layout, speed

N = LLAMA_8B.parameter_count
PLACES = st.sampled_from([1, 2, 4, 8, 16, 64])


def test_inside_a_node_a_rank_receives_all_but_its_own_part() -> None:
    assert all_gather(800.0, ranks=8, stride=1, gpus_per_node=8) == (700.0, 0.0)


def test_between_nodes_each_node_receives_once_what_it_lacks_over_all_its_interfaces() -> None:
    nvlink, fabric = all_gather(1600.0, ranks=16, stride=1, gpus_per_node=8)
    assert nvlink == 1600 * 7 / 8
    assert fabric == 1600 / 2 / 8


def test_ranks_a_node_apart_use_efa_only() -> None:
    assert all_gather(400.0, ranks=4, stride=8, gpus_per_node=8) == (0.0, 300.0)


def test_an_all_to_all_keeps_its_own_part() -> None:
    assert all_to_all(800.0, ranks=4, stride=1, gpus_per_node=8) == (600.0, 0.0)
    assert all_to_all(800.0, ranks=16, stride=1, gpus_per_node=8) == (350.0, 400.0)


@given(ranks=PLACES, stride=PLACES)
def test_one_rank_moves_nothing_and_no_rank_more_than_the_buffer(ranks: int, stride: int) -> None:
    for collective in (all_gather, all_to_all):
        moved = collective(1.0, ranks, stride, 8)
        assert (sum(moved) == 0) == (ranks == 1)
        assert max(moved) <= 1


def test_fsdp_over_efa_moves_8_bytes_per_parameter_and_node_in_each_micro_batch() -> None:
    many = a_layout(512)
    gather = weight_gather(LLAMA_8B, many, "bf16", 8).fabric
    reduce = gradient_reduce_scatter(LLAMA_8B, many, 8).fabric
    assert 8 * (2 * gather + reduce) == pytest.approx(8 * N, rel=0.02)


def test_hsdp_moves_them_once_per_step() -> None:
    for micro_batches in (1, 4, 16):
        sharded = speed(a_layout(16), micro_batches=micro_batches)
        replicated = speed(a_layout(8, replicas=2), micro_batches=micro_batches)
        assert sharded.efa_gb / replicated.efa_gb == pytest.approx(micro_batches)


def test_two_replicas_exchange_their_gradient_shards_both_ways() -> None:
    traffic = replica_all_reduce(LLAMA_8B, a_layout(8, replicas=2), 8)
    assert traffic.nvlink == 0
    assert traffic.fabric == pytest.approx(2 * 4 * N / 8 / 2)


def test_replicas_inside_a_node_need_no_efa() -> None:
    assert replica_all_reduce(LLAMA_8B, a_layout(2, replicas=4), 8).fabric == 0


def test_fp8_gathers_blocks_in_one_byte_and_the_vocabulary_in_two() -> None:
    half = weight_gather(LLAMA_8B, a_layout(), "fp8", 8).nvlink
    whole = weight_gather(LLAMA_8B, a_layout(), "bf16", 8).nvlink
    blocks = 32 * LLAMA_8B.layer_parameter_count
    assert whole - half == pytest.approx(blocks * 7 / 8)
    assert weight_gather(LLAMA_8B, a_layout(), "mxfp8", 8).nvlink == whole


def test_tensor_parallel_ranks_gather_their_own_slices() -> None:
    whole = weight_gather(LLAMA_8B, a_layout(16), "bf16", 8)
    slices = weight_gather(LLAMA_8B, a_layout(8, tensor_parallel=2), "bf16", 8)
    # Half of the weights over half of the interfaces: as much on each.
    assert slices.fabric == pytest.approx(whole.fabric)


def test_ulysses_exchanges_heads_and_the_rest_gathers_keys_and_values() -> None:
    q, k, tokens = 4096, 1024, 1000
    ulysses = context_exchange(
        *(LLAMA_8B, a_layout(context_parallel=8, ulysses=8)),
        tokens=tokens,
        value_bytes=2,
        gpus_per_node=8,
    )
    assert ulysses == (2 * tokens * (2 * q + 2 * k) * 7 / 8, 0.0)
    gathered = context_exchange(
        LLAMA_8B, a_layout(context_parallel=4), tokens=tokens, value_bytes=2, gpus_per_node=8
    )
    assert gathered == (2 * tokens * 2 * k * 3, 0.0)


def test_tensor_parallel_moves_the_hidden_states_four_times_per_pass() -> None:
    traffic = tensor_exchange(
        LLAMA_8B, a_layout(4, tensor_parallel=2), tokens=1000, value_bytes=2, gpus_per_node=8
    )
    assert traffic == (4 * 2 * 1000 * 4096 / 2, 0.0)

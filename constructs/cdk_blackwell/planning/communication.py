"""Bytes that one GPU moves over NVLink and EFA in an optimizer step.

Collectives are counted as their ring or hierarchical forms move them: of a gathered buffer of ``P``
bytes a rank receives all but its own part; over EFA every node receives once what it lacks, spread
over its GPUs' interfaces. A reduce-scatter moves what an all-gather does, an all-reduce both.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Layout, Precision

GRADIENT_BYTES: Final = 4
"""The trainer reduces gradients in fp32."""
EXCHANGES: Final = 2
"""Of Ulysses per block: in the forward pass, and of the gradients the way back."""
GATHERS: Final = 3
"""Of keys and values per block: forward, again in the backward pass, and (a reduce-scatter) of
their gradients."""
TENSOR_PARALLEL_COLLECTIVES: Final = 4
"""Per block and direction: an all-gather and a reduce-scatter around attention and feed-forward,
each (an all-reduce moves as much)."""


class Traffic(NamedTuple):
    """Bytes per GPU and direction."""

    nvlink: float = 0.0
    fabric: float = 0.0

    def times(self, factor: float) -> Traffic:
        """So many of them."""
        return Traffic(self.nvlink * factor, self.fabric * factor)

    def plus(self, other: Traffic) -> Traffic:
        """Both, one after the other."""
        return Traffic(self.nvlink + other.nvlink, self.fabric + other.fabric)


NO_TRAFFIC: Final = Traffic()


def all_gather(buffer_bytes: float, ranks: int, stride: int, gpus_per_node: int) -> Traffic:
    """Of a buffer of ``buffer_bytes`` over ``ranks`` ranks that stand ``stride`` GPUs apart."""
    if ranks == 1:
        return NO_TRAFFIC
    per_node = min(ranks, max(1, gpus_per_node // stride))
    nodes = ranks / per_node
    return Traffic(
        nvlink=buffer_bytes * (per_node - 1) / per_node,
        fabric=buffer_bytes * (nodes - 1) / nodes / per_node,
    )


def all_to_all(local_bytes: float, ranks: int, stride: int, gpus_per_node: int) -> Traffic:
    """Each rank keeps its own part of ``local_bytes`` and sends the others theirs."""
    if ranks == 1:
        return NO_TRAFFIC
    per_node = min(ranks, max(1, gpus_per_node // stride))
    return Traffic(
        nvlink=local_bytes * (per_node - 1) / ranks, fabric=local_bytes * (ranks - per_node) / ranks
    )


def weight_bytes(model: ModelShape, precision: Precision, bf16_blocks: int = 0) -> float:
    """Of all weights as they are gathered, before tensor parallelism.

    Two bytes each; fp32 four; ``fp8`` sends the blocks' weights in one. The other low precisions
    gather in two and convert afterwards, as do ``bf16_blocks`` of the blocks.
    """
    if precision == "fp32":
        return 4.0 * model.parameter_count
    if precision == "fp8":
        blocks = (model.num_hidden_layers - bf16_blocks) * model.layer_parameter_count
        return 2.0 * model.parameter_count - blocks
    return 2.0 * model.parameter_count


def weight_gather(
    model: ModelShape,
    layout: Layout,
    precision: Precision,
    gpus_per_node: int,
    bf16_blocks: int = 0,
) -> Traffic:
    """All weights once."""
    buffer = weight_bytes(model, precision, bf16_blocks) / layout.tensor_parallel
    return all_gather(buffer, layout.shard_gpus, layout.tensor_parallel, gpus_per_node)


def gradient_reduce_scatter(model: ModelShape, layout: Layout, gpus_per_node: int) -> Traffic:
    """All gradients once, to their shards."""
    buffer = GRADIENT_BYTES * model.parameter_count / layout.tensor_parallel
    return all_gather(buffer, layout.shard_gpus, layout.tensor_parallel, gpus_per_node)


def replica_all_reduce(model: ModelShape, layout: Layout, gpus_per_node: int) -> Traffic:
    """The shards' gradients between replicas (HSDP), once per optimizer step."""
    one_copy = layout.shard_gpus * layout.tensor_parallel
    shard = GRADIENT_BYTES * model.parameter_count / one_copy
    return all_gather(shard, layout.replicas, one_copy, gpus_per_node).times(2)


def context_exchange(
    model: ModelShape,
    layout: Layout,
    *,
    tokens: float,
    value_bytes: int,
    gpus_per_node: int,
    exchanges: float = 1.0,
    gathers: float = 1.0,
) -> Traffic:
    """Of one block over ``tokens`` local tokens.

    Ulysses sends queries, keys, values and the output by all-to-all (``exchanges`` times); what is
    left of the group gathers keys and values (``gathers`` times). Default: a forward pass.
    """
    if layout.context_parallel == 1:
        return NO_TRAFFIC
    tensor = layout.tensor_parallel
    per_token = value_bytes * tokens / tensor
    exchanged = per_token * (2 * model.query_size + 2 * model.key_value_size)
    gathered = layout.context_parallel // layout.ulysses
    keys_and_values = per_token * 2 * model.key_value_size * gathered
    sent = all_to_all(exchanged, layout.ulysses, tensor, gpus_per_node)
    received = all_gather(keys_and_values, gathered, tensor * layout.ulysses, gpus_per_node)
    return sent.times(exchanges).plus(received.times(gathers))


def tensor_exchange(
    model: ModelShape, layout: Layout, *, tokens: float, value_bytes: int, gpus_per_node: int
) -> Traffic:
    """Of one block and pass over ``tokens`` tokens of a tensor-parallel group."""
    if layout.tensor_parallel == 1:
        return NO_TRAFFIC
    hidden = value_bytes * tokens * model.hidden_size
    one = all_gather(hidden, layout.tensor_parallel, 1, gpus_per_node)
    return one.times(TENSOR_PARALLEL_COLLECTIVES)

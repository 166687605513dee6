"""Seconds of one optimizer step on one GPU, phase by phase: a roofline with named shares of peak.

Compute, memory traffic, communication and host launches are each derived from the model's shape
and the layout; only the shares of peak (``Efficiency``) are assumptions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from cdk_blackwell.planning.communication import (
    EXCHANGES,
    GATHERS,
    Traffic,
    context_exchange,
    gradient_reduce_scatter,
    replica_all_reduce,
    tensor_exchange,
    weight_bytes,
    weight_gather,
)
from cdk_blackwell.planning.efficiency import EfficiencyValues
from cdk_blackwell.planning.flops import (
    ATTENTION_PASSES,
    MATRIX_PASSES,
    attention_flops,
    block_weights,
    flops_per_token,
    recomputation,
)
from cdk_blackwell.planning.hardware import Node
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Layout, Recipe

EAGER_TRAFFIC: Final = 3.0
"""Memory traffic of plain elementwise kernels over that of fused ones. Published: Llama 3 8B on
H100 runs 5,762 tokens/s eager and 6,667 compiled; our own block moves 3 to 4 times as much."""
LOSS_BYTES: Final = {True: 12, False: 28}
"""Per logit, compiled or not: bf16 logits read twice forward and once backward and written twice;
plain kernels write and read fp32 copies between cast, softmax, loss and their gradients."""
OPTIMIZER_BYTES: Final = {"fused": 40, "foreach": 92}
"""Per parameter of the shard: AdamW reads 16 and writes 12, clipping reads and writes 12; foreach
passes over the parameters for each of its operations."""
CONVERSION_BYTES: Final = {"fp8": 6, "fp8_rowwise": 8, "mxfp8": 6}
"""Per element of an input or output gradient of a converted matrix product: ``fp8`` reads for the
maximum, reads again and writes both orders; ``fp8_rowwise`` finds maxima in both directions;
``mxfp8`` reads and writes once in each direction."""
KERNELS: Final = {True: (14, 28), False: (30, 55)}
"""Per block, forward and backward, compiled or not: 7 and 14 matrix products, attention, and
elementwise kernels (counted on our own block; fused normalisation taken as one)."""
SHARD_KERNELS: Final = 12
"""Per block and all-gather or reduce-scatter: copies, casts, events and the collective itself."""
EXCHANGE_KERNELS: Final = 12
"""Per block and pass of tensor parallelism (two all-gathers, two reduce-scatters) or of context
parallelism (queries, keys, values and output, or keys and values and their gradients): four
collectives, each between two copies."""


class StepTime(NamedTuple):
    """Seconds per optimizer step and GPU. What is hidden is in no phase."""

    matmul: float
    attention: float
    elementwise: float
    sharding_copies: float
    optimizer: float
    weights_and_gradients: float
    """Communication of FSDP and HSDP that computation does not hide."""
    context_parallel: float
    tensor_parallel: float
    launch: float
    """Waiting for the host to launch kernels."""

    @property
    def total(self) -> float:
        """The step."""
        return sum(self)


class StepEstimate(NamedTuple):
    """A step's time and what led to it."""

    time: StepTime
    micro_batches: int
    executed_flops: float
    """Per step and GPU, recomputation of activation checkpointing included."""
    hidden_seconds: float
    """Communication behind computation."""
    links: Traffic
    """All bytes per step, GPU and direction."""


def micro_batches(layout: Layout, recipe: Recipe) -> int:
    """Forward passes per optimizer step: what accumulation makes of the global batch."""
    per_pass = recipe.sequence_length * layout.data_parallel * recipe.micro_batch_size
    return max(1, -(-recipe.global_batch_tokens // per_pass))


def estimate_step(
    model: ModelShape, layout: Layout, recipe: Recipe, values: EfficiencyValues, node: Node
) -> StepEstimate:
    """The roofline."""
    count = micro_batches(layout, recipe)
    tensor = layout.tensor_parallel
    tokens = recipe.micro_batch_size * recipe.sequence_length / layout.context_parallel
    layers = model.num_hidden_layers
    precision, compiled = recipe.precision, recipe.compile
    bf16_blocks = recipe.bf16_blocks(layers)
    converted = 1 - bf16_blocks / layers
    again = recomputation(model, recipe.activation_checkpointing)
    value_bytes = 4 if precision == "fp32" else 2
    head_precision = "fp32" if precision == "fp32" else "bf16"
    hbm = values.hbm * node.hbm_bytes_per_second

    # Matrix products, bound by arithmetic or, in narrow models, by their operands' traffic.
    weights = block_weights(model)
    block_flops = 2 * layers * (MATRIX_PASSES * weights + again.weights) * tokens / tensor
    head_flops = 2 * model.embedding_parameter_count * MATRIX_PASSES * tokens / tensor
    elements = _operand_elements(model)
    operands = value_bytes * layers * elements * tokens / tensor * MATRIX_PASSES
    block_seconds, head_seconds = (
        1 / (values.matmul[kind] * node.peak_flops[kind]) for kind in (precision, head_precision)
    )
    per_flop = converted * block_seconds + (1 - converted) * head_seconds
    matmul = max(block_flops * per_flop, operands / hbm) + head_flops * head_seconds

    # Flash attention; no such kernel for fp32, which runs at that precision's own rate.
    one_pass = layers * attention_flops(model, recipe.sequence_length) * tokens / tensor
    rate = values.attention * node.peak_flops[head_precision]
    if layout.context_parallel > layout.ulysses:
        rate *= values.gathered_attention
    attention = one_pass * (ATTENTION_PASSES + again.attention) / rate

    model_flops = flops_per_token(model, recipe.sequence_length)
    repeated_flops = 2 * layers * again.weights * tokens / tensor
    repeated_flops += one_pass * again.attention

    # Elementwise kernels, the loss and the conversions of low precision.
    forward, backward = _elementwise_bytes(model, value_bytes)
    block_bytes = forward * (1 + again.elementwise) + backward
    if not compiled:
        block_bytes *= EAGER_TRAFFIC
    block_bytes += CONVERSION_BYTES.get(precision, 0) * elements * converted
    loss_bytes = LOSS_BYTES[compiled] * model.vocab_size
    elementwise = (layers * block_bytes + loss_bytes) * tokens / tensor / hbm

    # The optimizer step, and what sharding copies: gathered weights out of the collective's
    # buffer, gradients into one in fp32, or added to whole fp32 gradients.
    parameters = model.parameter_count
    shard = parameters / (layout.shard_gpus * tensor)
    optimizer = OPTIMIZER_BYTES[recipe.optimizer.implementation] * shard / hbm
    gathers = (2 * count if layout.reshard_after_forward else 1) if layout.shard_gpus > 1 else 0
    each_micro_batch = layout.gradient_sync == "micro_batch"
    reduces = (count if each_micro_batch else 1) if layout.shard_gpus > 1 else 0
    copied = gathers * 2 * weight_bytes(model, precision, bf16_blocks)
    copied += reduces * (value_bytes + 4) * parameters
    if each_micro_batch:
        copied += (count - 1) * 12 * parameters / layout.shard_gpus
    else:
        copied += (count - 1) * (8 + value_bytes) * parameters
    copies = copied / tensor / hbm

    # The host: kernels of all micro-batches and of sharding.
    forward_kernels, backward_kernels = KERNELS[compiled]
    kernels = layers * (forward_kernels * (1 + again.elementwise) + backward_kernels) * count
    kernels += layers * SHARD_KERNELS * (gathers + reduces)
    # Compiled, gathered attention is one operator, which selective checkpointing keeps.
    exchanges = EXCHANGES + again.elementwise if layout.ulysses > 1 else 0
    gathers_keys = layout.context_parallel > layout.ulysses
    key_gathers = GATHERS + (again.attention if compiled else again.elementwise)
    key_gathers = key_gathers if gathers_keys else 0
    slices = layers * (2 + again.elementwise) if tensor > 1 else 0
    kernels += EXCHANGE_KERNELS * (layers * (exchanges + key_gathers) + slices) * count
    per_kernel = values.compiled_kernel_seconds if compiled else values.eager_kernel_seconds
    computation = matmul + attention + elementwise
    launch = max(0.0, kernels * per_kernel - count * computation - copies)

    # Communication. FSDP's and HSDP's hides behind computation and behind
    # the host, that inside a block does not.
    nvlink = values.nvlink * node.nvlink_bytes_per_second
    fabric = values.fabric * node.fabric_bytes_per_second
    gather = weight_gather(model, layout, precision, node.gpus, bf16_blocks)
    reduce = gradient_reduce_scatter(model, layout, node.gpus)
    replicas = replica_all_reduce(model, layout, node.gpus)
    gather_seconds = _link_seconds(gather, nvlink, fabric)
    reduce_seconds = _link_seconds(reduce, nvlink, fabric)
    repeated = 2 * gather_seconds if layout.reshard_after_forward else 0.0
    repeated += reduce_seconds if each_micro_batch else 0.0
    once = _link_seconds(replicas, nvlink, fabric)
    once += 0.0 if layout.reshard_after_forward else gather_seconds
    once += 0.0 if each_micro_batch else reduce_seconds
    shelter = computation + launch / count
    exposed = (count - 1) * _exposed(repeated, shelter, values.overlap)
    exposed += _exposed(repeated + once, shelter, values.overlap)
    total_links = count * repeated + once

    context = context_exchange(
        model,
        layout,
        tokens=tokens,
        value_bytes=value_bytes,
        gpus_per_node=node.gpus,
        exchanges=exchanges,
        gathers=key_gathers,
    ).times(layers)
    sliced = tensor_exchange(
        model, layout, tokens=tokens, value_bytes=value_bytes, gpus_per_node=node.gpus
    )

    factor = values.time_factor
    return StepEstimate(
        time=StepTime(
            matmul=factor * count * matmul,
            attention=factor * count * attention,
            elementwise=factor * count * elementwise,
            sharding_copies=factor * copies,
            optimizer=factor * optimizer,
            weights_and_gradients=factor * exposed,
            context_parallel=factor * count * _link_seconds(context, nvlink, fabric),
            tensor_parallel=factor * count * slices * _link_seconds(sliced, nvlink, fabric),
            launch=factor * launch,
        ),
        micro_batches=count,
        executed_flops=count * (tokens * model_flops / tensor + repeated_flops),
        hidden_seconds=factor * (total_links - exposed),
        links=Traffic(
            *(
                gathers * gathered + reduces * reduced + once + count * (c + t * slices)
                for gathered, reduced, once, c, t in zip(
                    gather, reduce, replicas, context, sliced, strict=True
                )
            )
        ),
    )


def _operand_elements(model: ModelShape) -> int:
    """Elements per token that a block's matrix products read and write, or convert."""
    h, q, k = model.hidden_size, model.query_size, model.key_value_size
    return 3 * h + q + 2 * k + q + h + 2 * h + 3 * model.intermediate_size + h


def _elementwise_bytes(model: ModelShape, value_bytes: int) -> tuple[float, float]:
    """Forward and backward bytes per token of a block's fused kernels, operands of products aside.

    Forward, in elements: two norms 6h with the residual sum between them, the last sum 3h, rotation
    and attention 4(q+k), SwiGLU 3f. Backward: norms with residual and branch sums 11h, attention
    with an fp32 gradient of the queries 8q+4k, rotation 2(q+k), SwiGLU 6f.
    """
    h, q, k = model.hidden_size, model.query_size, model.key_value_size
    f = model.intermediate_size
    forward = 9 * h + 4 * (q + k) + 3 * f
    backward = 11 * h + 10 * q + 6 * k + 6 * f
    return value_bytes * float(forward), value_bytes * float(backward)


def _link_seconds(traffic: Traffic, nvlink: float, fabric: float) -> float:
    """Both links work at the same time: the slower one counts."""
    return max(traffic.nvlink / nvlink, traffic.fabric / fabric)


def _exposed(communication: float, computation: float, overlap: float) -> float:
    """What is left of communication after ``overlap`` of what computation can hide is hidden."""
    return communication - overlap * min(communication, computation)

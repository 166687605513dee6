"""What one block keeps from forward to backward, and how much its backward pass needs at most.

Counted tensor by tensor for the trainer's block: separate projections, a fused RMSNorm and flash
attention. Names: hidden, query, key and inner are activations of that width for all tokens of one
GPU; tensor parallelism divides all of them but hidden, which every rank of it has whole.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from cdk_blackwell.planning.model_shape import ModelShape

EIGHT_BIT_CASTS: Final[Mapping[str, tuple[float, float]]] = {
    "fp8": (4.5, 0.0),
    "fp8_rowwise": (4.5, 0.5),
    "mxfp8": (6.2, 1.5),
}
"""Steps of a cast to 8 bits by torchao 0.18's plain operations, in units of what is cast (in bf16):
two fp32 copies (three for mxfp8, with scales) and the result; and 8-bit copies of the weight, in
units of it. Compiled, the cast is one kernel and none of these exist."""


class BlockActivations(NamedTuple):
    """Bytes, for the tokens of one micro-batch on one GPU."""

    hidden: float
    query: float
    key: float
    attended_key: float
    """As attention takes it: fp32 kernels want a head of keys for each head of queries."""
    inner: float
    statistics: float
    """The softmax's log-sum-exp per head, fp32."""
    norm_inputs: float
    """Queries and keys before they are normalised, with their scales; 0 without such norms."""
    norm_scales: float
    """Of the two norms of the hidden state."""
    rotary: float
    """Cosines and sines that FSDP casts for every block when they are passed into it, as in the
    oracle's runs. This trainer's blocks share one table: its blocks keep this much less."""
    inner_matrix: float
    """Gradient of one feed-forward matrix."""
    output_matrix: float
    """Gradient of attention's output projection."""
    all_matrices: float
    """Gradients of all of the block's parameters."""
    exchanged: float
    """Context parallelism: attention's output in the order of heads, beside that in the order of
    tokens."""
    gather: int
    """Ranks whose keys and values are gathered; 1 is no gathering."""
    precision: str
    post_norm: bool
    compiled: bool

    def saved(self, mode: str) -> float:
        """Bytes kept by a block under ``none``, ``selective`` or ``full`` checkpointing."""
        if mode == "full":
            return self.hidden + self.rotary
        if mode == "selective":
            # Block input, attention output and its statistics, and the products q, v, gate, down.
            attention = self.query + self.statistics
            if self.gather > 1 and not self.compiled:
                # Plainly run, gathered attention is two chunks with two partial outputs each;
                # compiled, it is one operator, whose output alone is kept.
                attention *= 2
            # Compiled blocks drop the last product where only a sum follows it. It is counted all
            # the same, since published runs hold more rather than less.
            products = self.query + self.key + self.inner + self.hidden
            return self.hidden + attention + products + self.rotary
        # Both norms' inputs and outputs (or, of normed outputs, these and what is multiplied);
        # query and attention output; key and value; gate, up and its product with silu(gate),
        # which only plain kernels keep too. Compiled ones could make more of it again, but torch's
        # partitioner keeps every operand of a matrix product in backward.
        return (
            4 * self.hidden
            + 2 * self.query
            + 2 * self.attended_key
            + (3 if self.compiled else 4) * self.inner
            + self.norm_scales
            + self.statistics
            + self.rotary
            + self.norm_inputs
            + self.exchanged
        )

    def recomputed(self, mode: str) -> float:
        """Bytes computed again before a block's backward pass."""
        everything = self.saved("none")
        if mode == "none":
            return everything - self.saved("none")
        if mode == "full":
            return everything - self.saved("full")
        # All but what is kept; the query is made again, since its rotated form is needed. As the
        # input of a norm the kept one stays beside it, and normed outputs are made first.
        hidden = 2 if self.post_norm else 3
        again = hidden * self.hidden + self.query + self.key + 3 * self.inner + self.exchanged
        if self.attended_key > self.key:
            again += 2 * self.attended_key - self.key
        return again + max(0.0, self.norm_inputs - self.query)

    @property
    def temporaries(self) -> float:
        """Gradients inside the feed-forward part, the widest of the block."""
        return 3 * self.inner + self.inner_matrix + self.hidden

    def backward_peaks(self, mode: str) -> dict[str, float]:
        """Bytes of this block at the moments of its backward pass that can be the peak."""
        feed_forward = self.saved(mode) + self.recomputed(mode) + self.temporaries - self.inner
        if mode == "selective" or self.post_norm:
            feed_forward -= self.hidden  # the last product's output is not needed any more
        # A norm's backward pass holds nine activations, four of them fp32.
        norm = 9 * self.hidden
        attention = (
            3 * self.hidden
            + 2 * self.query
            + 2 * self.attended_key
            + self.statistics
            + self.rotary
            + self.norm_inputs
            + self.exchanged
        )
        peaks = {
            "feed-forward backward": feed_forward,
            "second norm backward": attention + norm + 3 * self.inner_matrix,
            "end of block backward": self.saved("full") + norm + self.all_matrices,
        }
        if self.gather > 1:
            # Keys and values of all ranks, their gradients, and these three times more while they
            # are put in the order in which ranks sum them; beside gradients of query and output,
            # and of the last chunk.
            peaks["gathered attention backward"] = (
                attention
                + 2 * self.query
                + self.key
                + self.statistics / 2
                + 10 * self.gather * self.key
                + 3 * self.inner_matrix
                + self.output_matrix
            )
        if self.precision in EIGHT_BIT_CASTS and not self.compiled:
            steps, matrices = EIGHT_BIT_CASTS[self.precision]
            # Weights are cast as well, unless they were gathered in 8 bits.
            largest = max(self.inner, self.inner_matrix if matrices else 0)
            cast = self.inner + steps * largest + 2 * self.hidden + matrices * self.inner_matrix
            peaks["8-bit cast in backward"] = feed_forward - self.temporaries + self.inner + cast
        return peaks


def block_activations(
    model: ModelShape,
    *,
    tokens: int,
    sequence_length: int,
    width: int,
    precision: str,
    compiled: bool,
    context_parallel: int = 1,
    ulysses: int = 1,
    tensor_parallel: int = 1,
) -> BlockActivations:
    """For ``tokens`` per GPU and micro-batch; ``width`` is the bytes of a number."""
    gather = context_parallel // ulysses
    query = width * model.query_size * tokens / tensor_parallel
    key = width * model.key_value_size * tokens / tensor_parallel
    repeats_heads = width == 4 and gather == 1 and key < query
    exchanged = query if context_parallel > 1 else 0.0
    if exchanged and repeats_heads:
        exchanged += 2 * key  # received in one buffer with the queries, which stay
    if model.qk_norm == "none":
        norm_inputs = 0.0
    elif model.qk_norm == "full":
        norm_inputs = query + key + 8 * tokens
    else:
        heads = model.num_attention_heads + model.num_key_value_heads
        norm_inputs = query + key + 4 * heads * tokens / tensor_parallel
    return BlockActivations(
        hidden=width * model.hidden_size * tokens,
        query=query,
        key=key,
        attended_key=query if repeats_heads else key,
        inner=width * model.intermediate_size * tokens / tensor_parallel,
        statistics=4 * model.num_attention_heads * tokens / tensor_parallel,
        norm_inputs=norm_inputs,
        norm_scales=8 * tokens,
        rotary=width * model.head_dim * sequence_length / context_parallel,
        inner_matrix=width * model.hidden_size * model.intermediate_size / tensor_parallel,
        output_matrix=width * model.hidden_size * model.query_size / tensor_parallel,
        all_matrices=width * model.layer_parameter_count / tensor_parallel,
        exchanged=exchanged,
        gather=gather,
        precision=precision,
        post_norm=model.norm_placement == "post",
        compiled=compiled,
    )

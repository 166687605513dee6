"""What one block keeps from forward to backward, and how much its backward pass needs at most.

Counted tensor by tensor for separate q, k, v, o, gate, up and down projections, a fused RMSNorm and
flash attention. Names: hidden, query, key and inner are activations of that width for all tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

from cdk_blackwell.planning.model_shape import ModelShape


@dataclass(frozen=True, kw_only=True)
class BlockActivations:
    """Bytes, for the tokens of one micro-batch on one GPU."""

    hidden: float
    query: float
    key: float
    inner: float
    statistics: float
    """The softmax's log-sum-exp per head (fp32); the norms' two scales come on top in ``none``."""
    norm_scales: float
    rotary: float
    """Cosines and sines that FSDP casts for every block when they are passed in."""
    inner_matrix: float
    """Gradient of one feed-forward matrix."""
    all_matrices: float
    """Gradients of all of the block's parameters."""
    compiled: bool

    def saved(self, mode: str) -> float:
        """Bytes kept by a block under ``none``, ``selective`` or ``full`` checkpointing."""
        if mode == "full":
            return self.hidden + self.rotary
        if mode == "selective":
            # Block input, attention output and its statistics, and the products q, v, gate, down.
            products = self.query + self.key + self.inner + self.hidden
            return self.hidden + self.query + products + self.statistics + self.rotary
        kept = self.statistics + self.rotary
        if self.compiled:
            # Norm outputs and SwiGLU are computed again from block input, second norm's input,
            # query, attention output, key, value, gate and up.
            return 2 * self.hidden + 2 * self.query + 2 * self.key + 2 * self.inner + kept
        # Both norms' inputs and outputs; query and attention output; key and value; gate, up,
        # silu(gate) and its product with up.
        return (
            4 * self.hidden
            + 2 * self.query
            + 2 * self.key
            + 4 * self.inner
            + self.norm_scales
            + kept
        )

    @property
    def recomputed(self) -> dict[str, float]:
        """Bytes computed again before a block's backward pass, by checkpointing mode."""
        everything = self.saved("none")
        if self.compiled:
            everything += 2 * self.hidden + 2 * self.inner
        return {
            "none": everything - self.saved("none"),
            "full": everything - self.saved("full"),
            # All but what is kept; the query is made again, since its rotated form is needed.
            "selective": 3 * self.hidden + self.query + self.key + 3 * self.inner,
        }

    @property
    def temporaries(self) -> float:
        """Gradients inside the feed-forward part, the widest of the block."""
        return 3 * self.inner + self.inner_matrix + self.hidden

    def backward_peaks(self, mode: str) -> dict[str, float]:
        """Bytes of this block at the moments of its backward pass that can be the peak."""
        feed_forward = self.saved(mode) + self.recomputed[mode] + self.temporaries - self.inner
        if mode == "selective":
            feed_forward -= self.hidden  # the last product's output is not needed any more
        # A norm's backward pass holds nine activations, four of them fp32.
        norm = 9 * self.hidden
        attention = 3 * self.hidden + 2 * self.query + 2 * self.key + self.statistics + self.rotary
        return {
            "feed-forward backward": feed_forward,
            "second norm backward": attention + norm + 3 * self.inner_matrix,
            "end of block backward": self.saved("full") + norm + self.all_matrices,
        }


def block_activations(
    model: ModelShape, *, tokens: int, sequence_length: int, width: int, compiled: bool
) -> BlockActivations:
    """For ``tokens`` per GPU and micro-batch; ``width`` is the bytes of a number."""
    return BlockActivations(
        hidden=width * model.hidden_size * tokens,
        query=width * model.query_size * tokens,
        key=width * model.key_value_size * tokens,
        inner=width * model.intermediate_size * tokens,
        statistics=4 * model.num_attention_heads * tokens,
        norm_scales=8 * tokens,
        rotary=width * model.head_dim * sequence_length,
        inner_matrix=width * model.hidden_size * model.intermediate_size,
        all_matrices=width * model.layer_parameter_count,
        compiled=compiled,
    )

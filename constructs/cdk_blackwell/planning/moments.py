"""The moments of a training step that can be its peak, and what is alive at each of them.

Backward runs in three streams whose memory the allocator does not share: computation, gathering of
weights, and reduced gradients (``torch.distributed.fsdp``, torch 2.13: all-gather outputs belong to
the copy-in stream, reduce-scatter outputs to the reduce-scatter stream, all else to the default
one). A moment therefore has three parts.
"""

from __future__ import annotations

from typing import NamedTuple

from cdk_blackwell.planning.training_step import TrainingStep


class Moment(NamedTuple):
    """Bytes alive, by the stream whose memory they are; their sum is what is allocated."""

    computing: float
    """With weights, optimizer state and what the blocks saved."""
    gathering: float
    reduced: float


class Peaks(NamedTuple):
    """Of one training step."""

    moments: dict[str, Moment]
    """Each at its own peak, which several blocks may have."""
    computing: float
    """The most that the computing stream holds, which may be at another block."""

    @property
    def highest(self) -> tuple[str, float]:
        """When the step's peak is, and how many bytes are alive then."""
        totals = {name: sum(moment) for name, moment in self.moments.items()}
        name = max(totals, key=totals.__getitem__)
        return name, totals[name]


def find_peaks(step: TrainingStep) -> Peaks:
    """Bytes alive at each moment that can be the peak."""
    blocks, computing = _block_moments(step)
    others = {
        **_loss_moments(step),
        **_last_moments(step),
        "optimizer step": _optimizer_moment(step),
    }
    computing = max(computing, *(moment.computing for moment in others.values()))
    return Peaks(others | blocks, computing)


def held_at_the_loss(step: TrainingStep) -> float:
    """What the computing stream holds when the loss begins."""
    return step.optimizer_state + step.whole_gradients + step.kept_weights + step.saved


def _loss_moments(step: TrainingStep) -> dict[str, Moment]:
    matrix, hidden = step.matrix, step.hidden
    reduced = step.earlier_gradients
    alive = held_at_the_loss(step)
    gathered = alive + step.left_over + matrix + 2 * hidden
    # The last block is gathered ahead while the head's gradient is computed.
    ahead = at_the_loss = step.gathering(step.gathered_block)
    head_gradients = matrix + step.width * step.logits
    loss = gathered + step.logit_bytes * step.logits
    if step.chunked_loss:
        # Pieces make their gradients in the forward pass: a new piece's beside their sum, and what
        # the head was gathered into beside the head.
        head_gradients += matrix
        loss += matrix + hidden
        at_the_loss = step.gathered_head
    moments = {
        "loss": Moment(loss, at_the_loss, reduced),
        "head backward": Moment(gathered + hidden + head_gradients, at_the_loss, reduced),
    }
    if not step.tied:
        moments["head gradient reduction"] = Moment(
            alive + hidden + matrix + step.matrix_gradient,
            ahead,
            reduced + step.matrix_gradient / step.ranks,
        )
    return moments


def _block_moments(step: TrainingStep) -> tuple[dict[str, Moment], float]:
    """Of the blocks from last to first, and the most that the computing stream holds then.

    What is alive changes evenly from block to block of one kind, so a peak lies at the ends.
    """
    moments: dict[str, Moment] = {}
    most = 0.0
    ends = _ends(step.layers, step.interval)
    for mode in step.saved_by_mode:
        peaks = step.block.backward_peaks(mode)
        alive = [_alive_at(step, index) for index in ends if step.mode(index) == mode]
        if not alive:
            continue
        computing, gathering, reduced = max(alive, key=sum)
        for name, value in peaks.items():
            moment = Moment(computing + value, gathering, reduced)
            if name not in moments or sum(moment) > sum(moments[name]):
                moments[name] = moment
        most = max(most, max(alive).computing + max(peaks.values()))
    return moments, most


def _alive_at(step: TrainingStep, index: int) -> Moment:
    """What is alive during the backward pass of block ``index``, beside its own activations."""
    done = step.layers - 1 - index
    computing = step.optimizer_state + step.saved_below(index)
    # Being reduced: the head or the block before. Reduced: all until then.
    reducing, reduced = step.matrix_gradient, step.matrix_gradient / step.ranks
    if step.tied:
        # The root stays gathered, and the head's gradient waits for the end of the pass.
        computing += 2 * step.matrix
        reducing, reduced = step.left_over, 0.0
    if done:
        reducing = step.block_gradients
        reduced += done * step.block_gradients / step.shard_gpus
    if step.reduces_at_once:
        reduced = step.gradients  # new ones are added to what is there
    ahead = step.gathered_block if index else 0.0 if step.tied else step.matrix
    if step.keeps_weights:
        # Before the last micro-batch nothing is given up; in the last, block after block.
        given_up = 0.0 if step.accumulates else done * step.gathered_block
        computing += step.kept_weights - given_up
    else:
        computing += step.gathered_block
    if step.whole_gradients:
        head = 0.0 if step.tied else step.matrix_gradient
        remaining = step.whole_gradients - head - done * step.block_gradients
        if remaining + reducing + reduced < step.whole_gradients:
            # Before the last micro-batch all of them stay and none is reduced.
            remaining, reducing, reduced = step.whole_gradients, 0.0, 0.0
        computing += remaining
    return Moment(computing + reducing, step.gathering(ahead), reduced)


def _last_moments(step: TrainingStep) -> dict[str, Moment]:
    """The embedding's backward pass and the reduction that ends the pass."""
    matrix, reducing = step.matrix, step.block_gradients
    static = step.optimizer_state + (step.matrix_gradient if step.whole_gradients else 0.0)
    blocks = step.layers * step.block_gradients / step.shard_gpus
    if step.tied:
        reduced = max(blocks, step.earlier_gradients)
        # The matrix, its gradient as head, as embedding, and their sum.
        backward = static + 4 * matrix + step.hidden + reducing
        return {
            "embedding backward": Moment(backward, 0.0, reduced),
            "root gradient reduction": Moment(static + matrix + step.matrix_gradient, 0.0, reduced),
        }
    share = step.matrix_gradient / step.ranks
    reduced = max(blocks + share, step.earlier_gradients)
    backward = static + 2 * matrix + step.hidden + reducing
    return {
        "embedding backward": Moment(backward, 0.0, reduced),
        "embedding gradient reduction": Moment(
            static + matrix + step.matrix_gradient, 0.0, reduced + share
        ),
    }


def _optimizer_moment(step: TrainingStep) -> Moment:
    # A foreach optimizer's denominators are a copy of all parameters; a fused one needs none.
    temporaries = step.gradients if step.foreach_optimizer else 0.0
    if not step.compiled:
        # As the tracker counts plain AdamW (see ``memory``).
        temporaries = max(temporaries, (3 + 1 / step.ranks) * step.matrix_gradient)
    return Moment(step.optimizer_state + temporaries, 0.0, step.gradients)


def _ends(layers: int, interval: int | None) -> list[int]:
    """Blocks of every kind at both ends of the model."""
    if interval is None:
        return sorted({0, min(1, layers - 1), max(0, layers - 2), layers - 1})
    last = (layers - 1) // interval * interval
    near = {
        *(0, 1, interval - 1, interval, interval + 1),
        *(last - interval + 1, last - 1, last, last + 1, layers - 2, layers - 1),
    }
    return sorted(index for index in near if 0 <= index < layers)

"""Which activations are kept for the backward pass and which are computed again.

``none`` keeps all; ``full`` keeps each block's input; ``every:K`` does so for every K-th block;
``selective`` also keeps attention outputs and every second matrix product.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from trainer.errors import user_error
from trainer.model import Decoder

_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)
ATTENTION_OPERATORS = {getattr(torch.ops.aten, name).default for name in _ATTENTION}
MATRIX_OPERATORS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}


def apply_activation_checkpointing(model: Decoder, mode: str) -> None:
    """Set every block's ``recompute`` by the recipe's value."""
    every = checkpointed_every(mode)
    recompute = selective if mode == "selective" else full
    for index, block in enumerate(model.layers):
        chosen = every > 0 and (index + 1) % every == 0
        block.recompute = recompute if chosen else None


def checkpointed_every(mode: str) -> int:
    """K when every K-th block is checkpointed, 0 for none; a bad value is refused."""
    if mode == "none":
        return 0
    if mode in ("full", "selective"):
        return 1
    kind, _, count = mode.partition(":")
    if kind == "every" and count.isdecimal() and int(count) >= 1:
        return int(count)
    raise user_error(
        f"activation_checkpointing is {mode!r}; allowed are none, selective, full and every:K "
        "with K of 1 or more"
    )


def full(layer: Callable[[Tensor], Tensor], x_BSE: Tensor) -> Tensor:
    """Keep the block's input only."""
    out: Tensor = checkpoint(layer, x_BSE, use_reentrant=False, preserve_rng_state=False)
    return out


def selective(layer: Callable[[Tensor], Tensor], x_BSE: Tensor) -> Tensor:
    """Keep the block's input, attention outputs and every second matrix product."""
    out: Tensor = checkpoint(
        layer,
        x_BSE,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=functools.partial(create_selective_checkpoint_contexts, SelectivePolicy()),
    )
    return out


class SelectivePolicy:
    """Counts matrix products separately in the forward pass and in its recomputation."""

    def __init__(self) -> None:
        self._products = {False: 0, True: 0}

    def __call__(self, context: Any, operator: Any, *_: Any, **__: Any) -> CheckpointPolicy:
        """Decide for one operator call."""
        if operator in ATTENTION_OPERATORS:
            return CheckpointPolicy.MUST_SAVE
        if operator in MATRIX_OPERATORS:
            self._products[context.is_recompute] += 1
            if self._products[context.is_recompute] % 2 == 1:
                return CheckpointPolicy.MUST_SAVE
        return CheckpointPolicy.PREFER_RECOMPUTE

"""Which activations are kept for the backward pass and which are computed again.

``none`` keeps all; ``full`` keeps each block's input; ``every:K`` does so for blocks 0, K, 2K, ...;
``selective`` also keeps attention outputs and every second matrix product. Planning's memory
formula counts the same blocks.
"""

# ruff: noqa: N803 - suffixes of tensors name their dimensions
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

from cdk_blackwell.planning.activation_checkpointing import checkpointing_interval
from trainer import gathered_attention as _gathered_attention  # noqa: F401 - makes its operator
from trainer.model import Block, Decoder

_ATTENTION = (
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)
ATTENTION_OPERATORS = {getattr(torch.ops.aten, name).default for name in _ATTENTION} | {
    # As compiled blocks have it, whole; run plainly, its parts are of the above.
    torch.ops.cdk_blackwell.gathered_attention.default
}
MATRIX_OPERATORS = {torch.ops.aten.mm.default, torch.ops.aten.addmm.default}


def apply_activation_checkpointing(model: Decoder, mode: str) -> None:
    """Set every block's ``recompute`` by the recipe's value."""
    every = 1 if mode == "selective" else checkpointing_interval(mode)
    recompute = selective if mode == "selective" else full
    for index, block in enumerate(model.layers):
        assert isinstance(block, Block)
        block.recompute = recompute if every and index % every == 0 else None


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
        context_fn=selective_contexts,
    )
    return out


def selective_contexts() -> Any:
    """Contexts of one block's forward pass and of its recomputation, with a count of their own.

    A plain function, because torch.compile calls it while tracing: a policy made outside is no
    constant to it, and the whole block would then run uncompiled, without a word.
    """
    return create_selective_checkpoint_contexts(SelectivePolicy())  # type: ignore[no-untyped-call]


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

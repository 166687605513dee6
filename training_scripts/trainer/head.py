"""The output projection and the loss, computed in pieces so that logits never exist as a whole.

The loss runs inside the head's own ``forward``: FSDP gathers a module's weights around that call
and the backward pass through it, so the head's matrix is there only while it is needed.
Suffixes name dimensions: T tokens, E hidden, V vocab.
"""

# ruff: noqa: N803 - suffixes of tensors name their dimensions
from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from cdk_blackwell.planning.model_shape import ModelShape

IGNORED_TARGET: Final = -100
"""Target id of padding: no loss, no gradient."""


class Head(nn.Linear):
    """Hidden states to vocabulary; ``forward`` returns a summed loss."""

    def __init__(self, shape: ModelShape, *, loss_chunks: int) -> None:
        super().__init__(shape.hidden_size, shape.vocab_size, bias=False)
        self.loss_chunks = loss_chunks

    # The output projection is never called for its product alone, so the signature differs.
    def forward(self, x_TE: Tensor, targets_T: Tensor) -> Tensor:  # type: ignore[override]
        """Cross-entropy in nats summed over all targets that are not padding, in fp32."""
        return chunked_loss(x_TE, self.weight, targets_T, chunks=self.loss_chunks)


def chunked_loss(x_TE: Tensor, weight_VE: Tensor, targets_T: Tensor, *, chunks: int) -> Tensor:
    """Summed cross-entropy; beyond one chunk, each piece's logits are made again in backward."""
    if chunks == 1:
        return chunk_loss(x_TE, weight_VE, targets_T)
    pieces = [
        checkpoint(chunk_loss, x, weight_VE, t, use_reentrant=False, preserve_rng_state=False)
        for x, t in zip(x_TE.tensor_split(chunks), targets_T.tensor_split(chunks), strict=True)
    ]
    return torch.stack(pieces).sum()


def chunk_loss(x_TE: Tensor, weight_VE: Tensor, targets_T: Tensor) -> Tensor:
    """Summed cross-entropy of one piece of the tokens."""
    return F.cross_entropy(
        F.linear(x_TE, weight_VE).float(), targets_T, ignore_index=IGNORED_TARGET, reduction="sum"
    )

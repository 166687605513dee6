"""The output projection and the loss, computed in pieces so that logits never exist as a whole.

The loss runs inside the head's own ``forward``: FSDP gathers a module's weights around that call
and the backward pass through it, so the head's matrix is there only while it is needed.
Suffixes name dimensions: T tokens, E hidden, V vocab.
"""

# ruff: noqa: N803 - suffixes of tensors name their dimensions
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import torch
import torch.nn.functional as F  # noqa: N812 - the usual name
from torch import Tensor, nn

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
    """Summed cross-entropy; beyond one chunk, one piece's logits are alive at a time."""
    if chunks == 1:
        return chunk_loss(x_TE, weight_VE, targets_T)
    if not torch.is_grad_enabled():
        pieces = _split(x_TE, targets_T, chunks)
        return torch.stack([chunk_loss(x, weight_VE, targets) for x, targets in pieces]).sum()
    loss: Tensor = _LossInPieces.apply(  # type: ignore[no-untyped-call]
        x_TE, weight_VE, targets_T, chunks
    )
    return loss


def chunk_loss(x_TE: Tensor, weight_VE: Tensor, targets_T: Tensor) -> Tensor:
    """Summed cross-entropy of one piece of the tokens."""
    return F.cross_entropy(
        F.linear(x_TE, weight_VE).float(), targets_T, ignore_index=IGNORED_TARGET, reduction="sum"
    )


class _LossInPieces(torch.autograd.Function):
    """Makes each piece's gradients with its logits, so that backward needs neither again.

    A sum's gradients are those of its pieces, whatever it is multiplied by later: backward scales
    them. It does so in place, once; a second backward is refused by autograd itself.
    """

    @staticmethod
    def forward(
        context: Any, x_TE: Tensor, weight_VE: Tensor, targets_T: Tensor, chunks: int
    ) -> Tensor:
        x_gradient, weight_gradient = torch.empty_like(x_TE), torch.zeros_like(weight_VE)
        pieces = zip(
            _split(x_TE.detach(), targets_T, chunks), x_gradient.tensor_split(chunks), strict=True
        )
        losses = [
            _add_gradients(
                x, weight_VE.detach(), targets, x_gradient=out, weight_gradient=weight_gradient
            )
            for (x, targets), out in pieces
        ]
        context.save_for_backward(x_gradient, weight_gradient)
        context.chunks = chunks
        return torch.stack(losses).sum()

    @staticmethod
    def backward(context: Any, scale: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x_gradient, weight_gradient = context.saved_tensors
        for gradient in (x_gradient, weight_gradient):
            for piece in gradient.tensor_split(context.chunks):
                # In fp32: a GPU would round the scale of 16-bit gradients to their 16 bits.
                piece.copy_(piece.float() * scale)
        return x_gradient, weight_gradient, None, None


def _split(x_TE: Tensor, targets_T: Tensor, chunks: int) -> Iterator[tuple[Tensor, Tensor]]:
    return zip(x_TE.tensor_split(chunks), targets_T.tensor_split(chunks), strict=True)


def _add_gradients(
    x_TE: Tensor,
    weight_VE: Tensor,
    targets_T: Tensor,
    *,
    x_gradient: Tensor,
    weight_gradient: Tensor,
) -> Tensor:
    """Write a piece's own gradient, add its share of the matrix's; returns its loss.

    What it makes is gone when it returns, so that no two pieces have any of it.
    """
    x_TE.requires_grad_()
    weight_VE.requires_grad_()
    with torch.enable_grad():
        loss = chunk_loss(x_TE, weight_VE, targets_T)
    of_x, of_weight = torch.autograd.grad(loss, (x_TE, weight_VE))
    x_gradient.copy_(of_x)
    weight_gradient += of_weight
    return loss.detach()

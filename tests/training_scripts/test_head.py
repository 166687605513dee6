"""The loss in pieces: the same numbers as in one, no product made twice, and less memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from trainer.head import IGNORED_TARGET, chunked_loss

TOKENS, HIDDEN, VOCABULARY = 23, 8, 40
SCALE = 0.37


def inputs(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    """Hidden states, the head's matrix and targets, every fourth of which is padding."""
    generator = torch.Generator().manual_seed(3)
    x, weight = (
        torch.randn(size, HIDDEN, generator=generator).to(dtype).requires_grad_()
        for size in (TOKENS, VOCABULARY)
    )
    targets = torch.randint(VOCABULARY, (TOKENS,), generator=generator)
    targets[::4] = IGNORED_TARGET
    return x, weight, targets


def gradients(chunks: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor]:
    x, weight, targets = inputs(dtype)
    loss = chunked_loss(x, weight, targets, chunks=chunks)
    (SCALE * loss).backward()
    assert x.grad is not None
    assert weight.grad is not None
    return loss.detach(), x.grad, weight.grad


@pytest.mark.parametrize("chunks", [2, 5, TOKENS, TOKENS + 4])
def test_pieces_give_the_loss_and_the_gradients_of_the_whole(chunks: int) -> None:
    for pieces, whole in zip(gradients(chunks), gradients(1), strict=True):
        torch.testing.assert_close(pieces, whole, rtol=1e-6, atol=1e-6)


def test_a_16_bit_head_has_its_loss_in_fp32_and_gradients_in_16_bits() -> None:
    loss, *of_inputs = gradients(5, torch.bfloat16)
    exact_loss, *exact = gradients(1)
    assert loss.dtype is torch.float32
    assert float(loss) == pytest.approx(float(exact_loss), rel=0.01)
    for found, wanted in zip(of_inputs, exact, strict=True):
        assert found.dtype is torch.bfloat16
        torch.testing.assert_close(found.float(), wanted, rtol=0.02, atol=0.02)


def test_padding_has_no_gradient() -> None:
    _, of_x, _ = gradients(5)
    assert of_x[::4].count_nonzero() == 0
    assert of_x.count_nonzero(dim=1).bool().sum() == TOKENS - len(range(0, TOKENS, 4))


def products(chunks: int, *, train: bool = True) -> int:
    """FLOPs of all matrix products, forward and backward."""
    x, weight, targets = inputs()
    with FlopCounterMode(display=False) as counted, torch.set_grad_enabled(train):
        loss = chunked_loss(x, weight, targets, chunks=chunks)
        if train:
            loss.backward()
    flops: int = counted.get_total_flops()
    return flops


def test_no_product_is_made_twice() -> None:
    once = 2 * TOKENS * HIDDEN * VOCABULARY
    assert products(5) == products(1) == 3 * once
    assert products(5, train=False) == once


def test_logits_never_exist_as_a_whole() -> None:
    x, weight, targets = inputs()
    kept: list[int] = []

    def note(saved: Tensor) -> Tensor:
        kept.append(saved.numel())
        return saved

    with torch.autograd.graph.saved_tensors_hooks(note, lambda saved: saved):
        chunked_loss(x, weight, targets, chunks=5)
    assert max(kept) <= max(x.numel(), weight.numel()) < TOKENS * VOCABULARY


def test_a_second_backward_is_refused_rather_than_scaled_again() -> None:
    x, weight, targets = inputs()
    loss = chunked_loss(x, weight, targets, chunks=2)
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()

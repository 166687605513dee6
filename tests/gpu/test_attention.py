"""Attention runs on flash or cuDNN kernels at 8K tokens, and its parts merge exactly."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from trainer.attention import attend_to, attend_to_backward, causal_attention, merge
from trainer.parallel import World

pytestmark = pytest.mark.gpu

LENGTH = 8192
FAST = {"_scaled_dot_product_flash_attention", "_scaled_dot_product_cudnn_attention"}


class Operators(TorchDispatchMode):
    """Names of the operators that really run, below autograd."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def inputs(world: World, *, length: int, heads: int = 8, shared: int = 2) -> list[Tensor]:
    """Queries, keys and values in bf16."""
    generator = torch.Generator(world.device).manual_seed(0)
    return [
        torch.randn(
            (1, count, length, 128),
            device=world.device,
            dtype=torch.bfloat16,
            generator=generator,
            requires_grad=True,
        )
        for count in (heads, shared, shared)
    ]


def test_8k_tokens_use_a_fast_kernel_and_no_square_of_them(world: World) -> None:
    q, k, v = inputs(world, length=LENGTH)
    choice = SDPBackend(torch._fused_sdp_choice(q, k, v, is_causal=True, enable_gqa=True))
    assert choice in {SDPBackend.FLASH_ATTENTION, SDPBackend.CUDNN_ATTENTION}, choice.name
    before = torch.cuda.memory_allocated()
    with Operators() as ran:
        mixed = causal_attention(q, k, v)
        mixed.backward(torch.ones_like(mixed))
    assert len(ran.names & FAST) == 1, ran.names
    square = 2 * q.shape[1] * LENGTH**2
    assert torch.cuda.max_memory_allocated() - before < square / 2


def test_the_fast_kernel_computes_what_plain_operations_do(world: World) -> None:
    q, k, v = (x.detach() for x in inputs(world, length=LENGTH, heads=2, shared=1))
    with sdpa_kernel(SDPBackend.MATH):
        expected = causal_attention(q.float(), k.float(), v.float())
    torch.testing.assert_close(causal_attention(q, k, v).float(), expected, atol=0.02, rtol=0.02)


def test_parts_of_the_keys_merge_to_attention_to_all(world: World) -> None:
    """What context parallelism does with gathered keys, forward and backward."""
    q, k, v = inputs(world, length=1024)
    mixed = causal_attention(q, k, v)
    gradient = torch.randn_like(mixed)
    # Of the later half alone: its queries see the earlier keys whole, and their own causally.
    gradient[:, :, :512] = 0
    mixed.backward(gradient)

    everything = slice(None)
    early, late = (everything, everything, slice(512)), (everything, everything, slice(512, None))
    queries, incoming = q.detach()[late].contiguous(), gradient[late].contiguous()
    spans = [(early, False), (late, True)]
    pairs = [(k.detach()[span].contiguous(), v.detach()[span].contiguous()) for span, _ in spans]
    parts = [
        attend_to(queries, keys, values, causal=causal)
        for (keys, values), (_, causal) in zip(pairs, spans, strict=True)
    ]
    merged = merge(*parts)
    close: dict[str, Any] = {"atol": 0.03, "rtol": 0.03}
    torch.testing.assert_close(merged.mixed_BHSD, mixed.detach()[late], **close)
    q_sum = torch.zeros_like(queries)
    for (keys, values), (span, causal) in zip(pairs, spans, strict=True):
        of_q, of_k, of_v = attend_to_backward(
            incoming, queries, keys, values, merged, causal=causal
        )
        q_sum += of_q
        assert k.grad is not None
        assert v.grad is not None
        torch.testing.assert_close(of_k, k.grad[span], **close)
        torch.testing.assert_close(of_v, v.grad[span], **close)
    assert q.grad is not None
    torch.testing.assert_close(q_sum, q.grad[late], **close)

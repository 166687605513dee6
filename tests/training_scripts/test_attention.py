"""What torch is asked for decides which kernel a GPU runs; the numbers are the same on CPU."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from cdk_blackwell.planning.hardware import P6_B200
from trainer.attention import causal_attention
from trainer.precision import use_tensor_cores


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_grouped_heads_attend_as_repeated_ones_do(dtype: torch.dtype) -> None:
    """In fp32 torch is asked for no grouped heads, which no CUDA kernel but the plain one takes."""
    q, k, v = (torch.randn(2, heads, 8, 16, dtype=dtype) for heads in (4, 2, 2))
    keys, values = (x.repeat_interleave(2, dim=1) for x in (k, v))
    expected = scaled_dot_product_attention(q, keys, values, is_causal=True)
    name = "trainer.attention.F.scaled_dot_product_attention"
    with mock.patch(name, wraps=scaled_dot_product_attention) as asked:
        torch.testing.assert_close(causal_attention(q, k, v), expected)
    assert asked.call_args.kwargs["enable_gqa"] is (dtype is not torch.float32)


def test_fp32_products_run_on_the_tensor_cores_whose_peak_is_counted() -> None:
    before = torch.get_float32_matmul_precision()
    try:
        use_tensor_cores()
        assert torch.backends.cuda.matmul.allow_tf32
    finally:
        torch.set_float32_matmul_precision(before)
    assert P6_B200.peak_flops["fp32"] == P6_B200.peak_flops["bf16"] / 2, "TF32's"

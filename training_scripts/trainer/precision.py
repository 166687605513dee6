"""Number formats of the blocks' matrix products; torchao's kernels, imported only when asked for.

Embedding, norms, attention and head compute in bf16, master weights and gradients' sums are fp32.
In 8 bits are the seven projections of a block, as long as their sizes allow it. On CPU the same
quantisation is emulated in higher precision, so that its effect on the loss can be tested.
"""

# ruff: noqa: N803 - suffixes of tensors name their dimensions
from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from cdk_blackwell.planning.run_spec import EIGHT_BIT, Precision
from trainer.errors import user_error

if TYPE_CHECKING:
    from trainer.model import Decoder

COMPUTE_DTYPES: Final[Mapping[Precision, torch.dtype | None]] = {
    "bf16": torch.bfloat16,
    "fp32": None,
    "fp8": torch.bfloat16,
    "fp8_rowwise": torch.bfloat16,
    "mxfp8": torch.bfloat16,
}
"""What FSDP gathers weights in and activations are in; None leaves fp32."""
SIZE_MULTIPLES: Final[Mapping[Precision, int]] = {"fp8": 16, "fp8_rowwise": 16, "mxfp8": 32}
"""Both sizes of a weight must divide by this: the 16 bytes by which cuBLAS aligns 8-bit operands,
the 32 numbers that share a scale in OCP's MX format."""
MINIMUM_CAPABILITY: Final[Mapping[Precision, tuple[int, int]]] = {
    "fp8": (8, 9),
    "fp8_rowwise": (9, 0),
    "mxfp8": (10, 0),
}
"""First NVIDIA compute capability with the tensor cores: Ada, Hopper, Blackwell (SM100)."""


def compute_dtype(precision: Precision) -> torch.dtype | None:
    """What forward and backward compute in, but for 8-bit products."""
    return COMPUTE_DTYPES[precision]


def check_precision(precision: Precision, capability: tuple[int, int] | None) -> None:
    """Refuse what the GPU cannot do; ``capability`` is None on CPU, where 8 bits are emulated."""
    if precision not in EIGHT_BIT:
        return
    import_torchao()
    needed = MINIMUM_CAPABILITY[precision]
    if capability is not None and capability < needed:
        found = "".join(map(str, capability))
        wanted = "".join(map(str, needed))
        raise user_error(
            f"precision {precision} needs tensor cores of compute capability SM{wanted} or later, "
            f"but this GPU is SM{found}; use precision bf16, or an instance with newer GPUs"
        )


def use_tensor_cores() -> None:
    """Let fp32 matrix products on GPUs run as TF32: fp32's range, 10 bits of mantissa, fp32 sums.

    B200's tensor cores take no wider format; outside of them the same products are some 14 times
    slower. Planning's fp32 and the peak that utilisation is counted against are those of TF32.
    """
    torch.set_float32_matmul_precision("high")


def import_torchao() -> None:
    """Make sure that torchao is there, before anything is built on it."""
    if not torch.cuda.is_available():
        # Its CUDA libraries cannot be loaded, which would be told at length.
        os.environ.setdefault("TORCHAO_FORCE_SKIP_LOADING_SO_FILES", "1")
    try:
        import torchao.float8  # noqa: F401
    except ImportError as error:
        raise user_error(
            f"8-bit precision needs torchao, which cannot be imported ({error}): run "
            "'cdk-blackwell vendor' before the next deploy, use an image that has it, or set "
            "precision to bf16"
        ) from error


def is_eligible(weight_sizes: tuple[int, int], precision: Precision, *, emulate: bool) -> bool:
    """Whether a projection of ``(outputs, inputs)`` is computed in 8 bits.

    On GPUs small ones stay bf16, where scaling costs more than the faster product saves; the bounds
    are those torchao measured on H100. They are no matter of numerics, so emulation ignores them.
    """
    outputs, inputs = weight_sizes
    multiple = SIZE_MULTIPLES[precision]
    if outputs % multiple or inputs % multiple:
        return False
    if emulate:
        return True
    if precision == "fp8":
        return not (inputs <= 4096 and outputs <= 1024)
    return outputs > 2048 and inputs > 1024 and not (outputs <= 4096 and inputs <= 2048)


def apply_precision(
    model: Decoder, precision: Precision, *, emulate: bool, bf16_edge_blocks: int = 0
) -> int:
    """Replace the blocks' eligible projections; returns how many. Before anything is sharded.

    The first and the last ``bf16_edge_blocks`` blocks stay as they are.
    Parameters keep their names, shapes and fp32 values.
    """
    if precision not in EIGHT_BIT:
        return 0
    import_torchao()
    make = _make_mxfp8(emulate) if precision == "mxfp8" else _make_float8(precision, emulate)
    count = 0
    inner = list(model.layers)[bf16_edge_blocks : len(model.layers) - bf16_edge_blocks]
    for module in [module for block in inner for module in block.modules()]:
        for name, child in list(module.named_children()):
            if type(child) is not nn.Linear:
                continue
            outputs, inputs = child.weight.shape
            if is_eligible((outputs, inputs), precision, emulate=emulate):
                setattr(module, name, make(child))
                count += 1
    return count


def after_optimizer_step(model: nn.Module, precision: Precision) -> None:
    """Find the scales of all weights that are gathered in 8 bits by one all-reduce together."""
    if precision == "fp8":
        from torchao.float8 import precompute_float8_dynamic_scale_for_fsdp

        precompute_float8_dynamic_scale_for_fsdp(model)


def _make_float8(precision: Precision, emulate: bool) -> Callable[[nn.Linear], nn.Module]:
    from torchao.float8 import Float8LinearConfig
    from torchao.float8.float8_linear import Float8Linear

    recipe = "tensorwise" if precision == "fp8" else "rowwise"
    settings = Float8LinearConfig.from_recipe_name(recipe)
    object.__setattr__(settings, "emulate", emulate)
    # One scale a tensor is the same for a shard and the whole, so weights travel in 8 bits.
    object.__setattr__(settings, "enable_fsdp_float8_all_gather", precision == "fp8")

    def make(linear: nn.Linear) -> nn.Module:
        made: nn.Module = Float8Linear.from_float(linear, config=settings)
        return made

    return make


def _make_mxfp8(emulate: bool) -> Callable[[nn.Linear], nn.Module]:
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.quantization.quantize_.common import KernelPreference

    kernels = KernelPreference.EMULATED if emulate else KernelPreference.AUTO
    # Scales rounded up: nothing overflows (NVIDIA's recipe for training).
    settings = {"kernel_preference": kernels, "scale_calculation_mode": ScaleCalculationMode.RCEIL}

    def make(linear: nn.Linear) -> nn.Module:
        with torch.device("meta"):
            made = MXFP8Linear(linear, settings)
        made.weight, made.bias = linear.weight, linear.bias
        return made

    return make


class MXFP8Linear(nn.Linear):
    """A projection whose three products have operands of 8 bits, one scale for 32 numbers."""

    def __init__(self, linear: nn.Linear, settings: Mapping[str, Any]) -> None:
        super().__init__(linear.in_features, linear.out_features, bias=linear.bias is not None)
        self._settings = settings

    def forward(self, x_BSE: Tensor) -> Tensor:
        """As ``nn.Linear``."""
        from torchao.prototype.moe_training.mxfp8_linear import _to_mxfp8_then_scaled_mm

        out: Tensor = _to_mxfp8_then_scaled_mm(x_BSE, self.weight, **self._settings)
        return out if self.bias is None else out + self.bias.to(out.dtype)


def unwrapped(tensor: Tensor) -> Tensor:
    """The numbers of a weight that torchao wraps to gather it in 8 bits; any other as it is."""
    if type(tensor) in (Tensor, nn.Parameter):
        return tensor
    if isinstance(tensor, DTensor):
        local = tensor.to_local()
        inner = unwrapped(local)
        if inner is local:
            return tensor
        return DTensor.from_local(
            inner,
            tensor.device_mesh,
            tensor.placements,
            run_check=False,
            shape=tensor.shape,
            stride=tensor.stride(),
        )
    wrapped: Tensor = getattr(tensor, "_tensor", tensor)
    return wrapped

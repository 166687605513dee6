"""What the machines can do, each number with its source."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

TERA: Final = 1e12


@dataclass(frozen=True, kw_only=True)
class Node:
    """One instance type."""

    instance_type: str
    accelerator: str
    """GPU model, the key of the efficiency table."""
    gpus: int
    """That NVLink connects."""
    visible_gib: float
    """GiB per GPU that torch can see."""
    peak_flops: dict[str, float]
    """Dense peak FLOP/s per GPU by precision."""
    hbm_bytes_per_second: float
    nvlink_bytes_per_second: float
    """NVLink bytes per second per GPU and direction."""
    fabric_bytes_per_second: float
    """EFA bytes per second per GPU and direction."""


P6_B200: Final = Node(
    instance_type="ml.p6-b200.48xlarge",
    accelerator="B200",
    gpus=8,
    # 192 GB decimal are 179 GiB; torch sees 178.35 of them (published torchao and torchtitan runs).
    visible_gib=178.35,
    # NVIDIA's dense figures; FP32 matrix products run as TF32, half the BF16 rate.
    peak_flops={
        "bf16": 2250 * TERA,
        "fp32": 1125 * TERA,
        **dict.fromkeys(("fp8", "fp8_rowwise", "mxfp8"), 4500 * TERA),
    },
    # NVIDIA: 8 TB/s nominal.
    hbm_bytes_per_second=8e12,
    # NVIDIA: NVLink 5 moves 1.8 TB/s, both directions together.
    nvlink_bytes_per_second=900e9,
    # AWS: 8 x 400 Gbps a node.
    fabric_bytes_per_second=50e9,
)

MEMORY_FRACTION: Final = 0.92
"""Share of visible memory to plan with; the rest is fragmentation the planner cannot see."""
OUTSIDE_TORCH_GIB: Final = 2.5
"""CUDA context, NCCL and cuBLAS; published runs show 2.5 to 7 GiB beside the allocator."""


def memory_budget_gib(node: Node = P6_B200) -> float:
    """GiB of reserved memory per GPU that a plan may use (161.6 on p6-b200)."""
    return MEMORY_FRACTION * node.visible_gib - OUTSIDE_TORCH_GIB


_PEAKS: Final[tuple[tuple[str, dict[str, float]], ...]] = (
    # Dense tensor-core peaks from NVIDIA's data sheets, by a word in torch's device name. TF32 is
    # given for fp32, which is what matrix products use when it is allowed.
    ("B200", P6_B200.peak_flops),
    ("H200", {"bf16": 989 * TERA, "fp32": 495 * TERA}),
    ("H100", {"bf16": 989 * TERA, "fp32": 495 * TERA}),
    ("A100", {"bf16": 312 * TERA, "fp32": 156 * TERA}),
)


def peak_flops(device_name: str, precision: str) -> float | None:
    """Dense peak FLOP/s of a GPU by torch's device name; None when unknown (any CPU, say)."""
    for word, peaks in _PEAKS:
        if word in device_name:
            return peaks.get(precision)
    return None

"""Machines other than p6-b200 that published training runs used: evidence for the efficiency table.

Nothing is planned on them. Peaks are NVIDIA's dense figures, links those of the systems named.
"""

from __future__ import annotations

from typing import Final

from cdk_blackwell.planning.hardware import TERA, Node

_HOPPER_PEAKS: Final = {
    "bf16": 989 * TERA,
    "fp32": 495 * TERA,
    **dict.fromkeys(("fp8", "fp8_rowwise"), 1979 * TERA),
}

H100: Final = Node(
    # torchtitan's machines: 96 GB of HBM2e at 2.4 TB/s, NVLink 4, 400 Gbps per GPU, held at 500 W.
    instance_type="Grand Teton",
    accelerator="H100",
    gpus=8,
    visible_gib=94.99,
    peak_flops=_HOPPER_PEAKS,
    hbm_bytes_per_second=2.4e12,
    nvlink_bytes_per_second=450e9,
    fabric_bytes_per_second=50e9,
)
DGX_H100: Final = Node(
    # NVIDIA: 80 GB of HBM3 at 3.35 TB/s, NVLink 4, 400 Gbps per GPU, 700 W.
    instance_type="DGX H100",
    accelerator="H100-700W",
    gpus=8,
    visible_gib=79.1,
    peak_flops=_HOPPER_PEAKS,
    hbm_bytes_per_second=3.35e12,
    nvlink_bytes_per_second=450e9,
    fabric_bytes_per_second=50e9,
)
H200: Final = Node(
    # NVIDIA: 141 GB of HBM3e at 4.8 TB/s, NVLink 4, 700 W.
    instance_type="HGX H200",
    accelerator="H200",
    gpus=8,
    visible_gib=139.8,
    peak_flops=_HOPPER_PEAKS,
    hbm_bytes_per_second=4.8e12,
    nvlink_bytes_per_second=450e9,
    fabric_bytes_per_second=50e9,
)
GB200: Final = Node(
    # NVIDIA: GB200 NVL72, one NVLink domain of 72 GPUs at 1,200 W.
    instance_type="GB200 NVL72",
    accelerator="GB200",
    gpus=72,
    visible_gib=184.0,
    peak_flops={
        "bf16": 2500 * TERA,
        "fp32": 1250 * TERA,
        **dict.fromkeys(("fp8", "fp8_rowwise", "mxfp8"), 5000 * TERA),
    },
    hbm_bytes_per_second=8e12,
    nvlink_bytes_per_second=900e9,
    fabric_bytes_per_second=50e9,
)

ACCELERATORS: Final = {node.accelerator: node for node in (H100, DGX_H100, H200, GB200)}

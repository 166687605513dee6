"""Tensor parallelism: each block's matrices divided among ranks that compute on the same tokens.

Query, key, value, gate and up projections are split by outputs, so each rank has whole heads; the
projections that follow are split by inputs, and their partial results are summed. Embedding, norms
and head are not split: their parameters are sharded among these ranks instead (``shard``).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from trainer.model import Decoder

BY_OUTPUTS = (
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
)
BY_INPUTS = ("self_attn.o_proj", "mlp.down_proj")
SEEN_IN_PART = ("self_attn.q_norm.weight", "self_attn.k_norm.weight")
"""Shared by all heads, of which each rank has some: gradients are partial."""


def split_tensors(model: Decoder, mesh: DeviceMesh | None) -> None:
    """Divide every block among the ranks of ``mesh``; before ``shard``."""
    if mesh is None:
        return
    for block in model.layers:
        plan = {name: ColwiseParallel() for name in BY_OUTPUTS}
        parallelize_module(block, mesh, plan | {name: RowwiseParallel() for name in BY_INPUTS})


@torch.no_grad()
def complete_gradients(model: nn.Module, mesh: DeviceMesh | None) -> None:
    """Sum, once per step, the gradients of which each rank has a part."""
    if mesh is None:
        return
    for name, parameter in model.named_parameters():
        if name.endswith(SEEN_IN_PART) and parameter.grad is not None:
            gradient = parameter.grad
            local = gradient.to_local() if isinstance(gradient, DTensor) else gradient
            dist.all_reduce(local, group=mesh.get_group())

"""FSDP2: who holds which part of the model, and when parts are gathered and gradients summed.

Pure steps on a constructed model, in this order: ``apply_precision``, ``split_tensors``,
``share_sequences``, ``apply_activation_checkpointing``, ``shard``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from cdk_blackwell.planning.run_spec import Layout, Precision
from trainer.context_parallel import ContextGroup
from trainer.layout import Meshes
from trainer.model import Block, Decoder
from trainer.precision import compute_dtype


def share_sequences(model: Decoder, context: ContextGroup | None) -> None:
    """Attend over the tokens of all ranks of a context-parallel group."""
    if context is None:
        return
    size = context.size
    model.rotary.positions = lambda length: context.positions(length * size)
    for block in model.layers:
        assert isinstance(block, Block)
        block.self_attn.attend = context.attend


def shard(model: Decoder, meshes: Meshes, precision: Precision) -> None:
    """FSDP2 with fp32 master weights and gradients reduced in fp32.

    Every block, the embedding and the head are groups of their own, gathered for their own forward
    and backward pass; tied, embedding and head are one matrix and belong to the root, as the final
    norm always does. Tensor-parallel ranks, which do not split these, shard them among themselves
    too; as they all compute the same loss, FSDP's average over them changes nothing.
    """
    keep = not meshes.layout.reshard_after_forward
    policy = MixedPrecisionPolicy(param_dtype=compute_dtype(precision), reduce_dtype=torch.float32)
    for block in model.layers:
        fully_shard(block, mesh=meshes.parameters, mp_policy=policy, reshard_after_forward=not keep)
    if model.lm_head is not None:
        fully_shard(
            model.embed_tokens,
            mesh=meshes.everyone,
            mp_policy=policy,
            reshard_after_forward=not keep,
        )
        # Backward begins with the head: to free it after forward would gather it twice in a row.
        fully_shard(
            model.lm_head, mesh=meshes.everyone, mp_policy=policy, reshard_after_forward=False
        )
    fully_shard(model, mesh=meshes.everyone, mp_policy=policy)


def set_micro_batch(model: nn.Module, layout: Layout, *, last: bool) -> None:
    """Say before each forward pass whether it is the step's last micro-batch.

    Replicas exchange gradients only then; so do shards under ``gradient_sync="step"``; and weights
    kept since the first micro-batch are given up then (``reshard_after_forward=False``).
    """
    if not isinstance(model, FSDPModule):
        return
    model.set_is_last_backward(last)
    model.set_requires_all_reduce(last)
    if layout.gradient_sync == "step":
        model.set_requires_gradient_sync(last)
    if not layout.reshard_after_forward:
        model.set_reshard_after_backward(last)


def reshard(model: nn.Module) -> None:
    """Give up weights that a forward pass without backward left gathered."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@torch.no_grad()
def clip_gradients(parameters: Iterable[nn.Parameter], *, maximum_norm: float) -> Tensor:
    """Scale all gradients so that their common norm is at most ``maximum_norm``; returns the norm.

    Gradients may lie on different meshes, which torch's own function cannot combine: squares are
    summed over the ranks that hold different parts of the same gradients, mesh by mesh.
    """
    by_spread: dict[tuple[dist.ProcessGroup, ...], list[Tensor]] = defaultdict(list)
    for parameter in parameters:
        if parameter.grad is not None:
            by_spread[sharing_groups(parameter.grad)].append(local_part(parameter.grad))
    squares = []
    for groups, gradients in by_spread.items():
        square = nn.utils.get_total_norm(gradients).square()
        for group in groups:
            dist.all_reduce(square, group=group)
        squares.append(square)
    norm = torch.stack(squares).sum().sqrt()
    scale = (maximum_norm / (norm + 1e-6)).clamp(max=1.0)
    for gradients in by_spread.values():
        torch._foreach_mul_(gradients, scale)
    return norm


def sharing_groups(tensor: Tensor) -> tuple[dist.ProcessGroup, ...]:
    """Groups of ranks that hold different parts of a tensor; none when every rank has it whole."""
    if not isinstance(tensor, DTensor):
        return ()
    mesh, placements = tensor.device_mesh, tensor.placements
    return tuple(
        mesh.get_group(dimension)
        for dimension, placement in enumerate(placements)
        if not placement.is_replicate()
    )


def local_part(tensor: Tensor) -> Tensor:
    """What this rank holds."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor

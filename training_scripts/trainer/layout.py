"""Which rank does what: from ``run.json``'s layout to device meshes.

From outermost to innermost, ranks are numbered by replica, shard and tensor-parallel rank; among
the ranks that shard one copy of the parameters, those that share a sequence are neighbours, and
among these the Ulysses ranks. So the most frequent messages travel the shortest way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from cdk_blackwell.planning.divisibility import (
    TENSOR_PARALLEL_DIVIDES,
    sequence_divides,
    tensor_parallel_divides,
    ulysses_divides,
    ulysses_suffices,
)
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import EIGHT_BIT, Layout, Recipe
from trainer.context_parallel import ContextGroup
from trainer.errors import user_error
from trainer.parallel import World


def layout_in_use(layout: Layout, world: World) -> tuple[Layout, str | None]:
    """The planned layout, or, on CPU ranks that nobody planned for, one that they can do.

    Returns why it differs, too; GPUs that do not match the plan are refused.
    """
    if layout.gpus == world.size:
        return layout, None
    if world.has_gpu:
        factors = f"shard_gpus {layout.shard_gpus} x replicas {layout.replicas}"
        if layout.tensor_parallel > 1:
            factors += f" x tensor_parallel {layout.tensor_parallel}"
        raise user_error(
            f"run.json plans {factors} = {layout.gpus} GPUs, but {world.size} ranks were started; "
            "start the run on the planned number of instances, or plan again"
        )
    alone = replace(
        layout,
        shard_gpus=world.size,
        replicas=1,
        context_parallel=1,
        tensor_parallel=1,
        ulysses=1,
    )
    reason = f"planned for {layout.gpus} GPUs; {world.size} CPU ranks share the parameters instead"
    return alone, reason


class Trainable(Protocol):
    """The part of a run that a layout must suit."""

    @property
    def model(self) -> ModelShape:
        """What is trained."""

    @property
    def recipe(self) -> Recipe:
        """How."""


def check_layout(spec: Trainable, layout: Layout, *, gpu: bool = False) -> None:
    """Refuse what the model or the sequence cannot be divided by, as planning does.

    ``gpu``: and what has no kernel on GPUs.
    """
    model, length = spec.model, spec.recipe.sequence_length
    tensor, context, ulysses = layout.tensor_parallel, layout.context_parallel, layout.ulysses
    problem = None
    if not tensor_parallel_divides(model, tensor):
        problem = f"tensor_parallel {tensor} does not divide all of " + ", ".join(
            f"{name} {getattr(model, name)}" for name in TENSOR_PARALLEL_DIVIDES
        )
    elif not ulysses_divides(model, ulysses, tensor_parallel=tensor):
        problem = (
            f"ulysses {ulysses} x tensor_parallel {tensor} must divide the "
            f"{model.num_key_value_heads} key-value heads and an instance's 8 GPUs"
        )
    elif not sequence_divides(length, context, ulysses):
        problem = (
            f"sequence_length {length} cannot be cut for context_parallel {context}: ranks that "
            "gather keys hold two equal pieces each, others one"
        )
    elif gpu and not ulysses_suffices(context, ulysses, spec.recipe.precision):
        problem = (
            f"context_parallel {context} with ulysses {ulysses} gathers keys, and attention to "
            "gathered keys has no fp32 kernel: use bf16"
        )
    elif tensor > 1 and model.qk_norm == "full":
        problem = (
            f"tensor_parallel {tensor} would split whole queries and keys, which {model.name} "
            "normalises as one"
        )
    elif tensor > 1 and spec.recipe.precision in EIGHT_BIT:
        problem = (
            f"tensor_parallel {tensor} splits matrices, which precision "
            f"{spec.recipe.precision} scales as a whole: use bf16"
        )
    if problem:
        raise user_error(f"run.json's layout cannot be trained: {problem}; plan again")


@dataclass(frozen=True, kw_only=True)
class Meshes:
    """All ranks by what they share."""

    layout: Layout
    parameters: DeviceMesh
    """``shard``, or ``replicate`` and ``shard``: the ranks with the same tensor-parallel part."""
    everyone: DeviceMesh
    """The same with the tensor-parallel ranks sharding too, for what they do not split."""
    tensor: DeviceMesh | None
    context: ContextGroup | None
    data_rank: int
    """Which of the layout's ``data_parallel`` parts of the batch this rank reads."""


def make_meshes(layout: Layout, *, kind: str, rank: int) -> Meshes:
    """Meet the other ranks; ``kind`` is ``cuda`` or ``cpu``. Every rank must call this."""
    tensor, shard, replicas = layout.tensor_parallel, layout.shard_gpus, layout.replicas
    names = ("replicate", "shard") if replicas > 1 else ("shard",)
    if tensor == 1:
        shape = (replicas, shard) if replicas > 1 else (shard,)
        parameters = everyone = init_device_mesh(kind, shape, mesh_dim_names=names)
        tensor_mesh = None
    else:
        whole = init_device_mesh(
            kind, (replicas, shard, tensor), mesh_dim_names=("replicate", "shard", "tensor")
        )
        parameters, tensor_mesh = whole[names], whole["tensor"]
        shape = (replicas, shard * tensor) if replicas > 1 else (shard * tensor,)
        everyone = init_device_mesh(kind, shape, mesh_dim_names=names)
    return Meshes(
        layout=layout,
        parameters=parameters,
        everyone=everyone,
        tensor=tensor_mesh,
        context=_make_context(layout, kind=kind) if layout.context_parallel > 1 else None,
        data_rank=rank // (tensor * layout.context_parallel),
    )


def _make_context(layout: Layout, *, kind: str) -> ContextGroup:
    ulysses, gather = layout.ulysses, layout.context_parallel // layout.ulysses
    mesh = init_device_mesh(
        kind,
        (layout.data_parallel, gather, ulysses, layout.tensor_parallel),
        mesh_dim_names=("data", "gather", "ulysses", "tensor"),
    )
    return ContextGroup(
        ulysses=ulysses,
        ulysses_rank=mesh.get_local_rank("ulysses"),
        ulysses_group=mesh.get_group("ulysses") if ulysses > 1 else None,
        gather=gather,
        gather_rank=mesh.get_local_rank("gather"),
        gather_group=mesh.get_group("gather") if gather > 1 else None,
    )

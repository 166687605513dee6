"""Layouts one step away from a chosen one, and words for them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cdk_blackwell.planning.divisibility import (
    sequence_divides,
    tensor_parallel_works,
    ulysses_divides,
    ulysses_suffices,
)
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.run_spec import GradientSync, Layout
from cdk_blackwell.planning.wish import Wish


def neighbouring_layouts(wish: Wish, layout: Layout) -> tuple[Layout, ...]:
    """The layout with one value changed, where GPUs, model, sequence and batch allow it."""
    return tuple(
        other
        for other in dict.fromkeys(_steps(layout))
        if other != layout and _is_possible(wish, other)
    )


def _steps(layout: Layout) -> Iterator[Layout]:
    yield replace(layout, reshard_after_forward=not layout.reshard_after_forward)
    other: GradientSync = "micro_batch" if layout.gradient_sync == "step" else "step"
    yield replace(layout, gradient_sync=other)
    replicas, tensor = layout.replicas, layout.tensor_parallel
    for shards, copies in (
        (layout.shard_gpus * 2, replicas // 2),
        (layout.shard_gpus // 2, replicas * 2),
    ):
        if copies and shards and shards % layout.context_parallel == 0:
            yield replace(layout, shard_gpus=shards, replicas=copies)
    for context in (layout.context_parallel * 2, layout.context_parallel // 2):
        if context and layout.shard_gpus % context == 0:
            ulysses = (
                min(layout.ulysses * 2, P6_B200.gpus)
                if context > layout.context_parallel
                else min(layout.ulysses, context)
            )
            for groups in (ulysses, layout.ulysses):
                if context % groups == 0:
                    yield replace(layout, context_parallel=context, ulysses=groups)
    for ranks in (tensor * 2, tensor // 2):
        shards = layout.shard_gpus * tensor // ranks if ranks else 0
        if shards and shards % layout.context_parallel == 0:
            yield replace(layout, tensor_parallel=ranks, shard_gpus=shards)


def _is_possible(wish: Wish, layout: Layout) -> bool:
    node = min(P6_B200.gpus, wish.gpus)
    return (
        layout.gpus == wish.gpus
        and layout.shard_gpus * layout.tensor_parallel % node == 0
        and node % layout.tensor_parallel == 0
        and tensor_parallel_works(wish.model, layout.tensor_parallel, wish.precision)
        and ulysses_divides(wish.model, layout.ulysses, tensor_parallel=layout.tensor_parallel)
        and sequence_divides(wish.sequence_length, layout.context_parallel, layout.ulysses)
        and ulysses_suffices(layout.context_parallel, layout.ulysses, wish.precision)
        and wish.share(layout) > 0
    )


def describe_layout(layout: Layout) -> str:
    """``HSDP 8 x 4, context parallel 2 (ulysses 2), weights kept, gradients reduced per step``."""
    kind = (
        f"HSDP {layout.shard_gpus} x {layout.replicas}"
        if layout.replicas > 1
        else f"FSDP {layout.shard_gpus}"
    )
    parts = [kind]
    if layout.context_parallel > 1:
        parts.append(f"context parallel {layout.context_parallel} (ulysses {layout.ulysses})")
    if layout.tensor_parallel > 1:
        parts.append(f"tensor parallel {layout.tensor_parallel}")
    parts.append("weights resharded" if layout.reshard_after_forward else "weights kept")
    parts.append(f"gradients reduced per {layout.gradient_sync.replace('_', '-')}")
    return ", ".join(parts)

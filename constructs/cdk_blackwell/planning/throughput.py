"""Predicted speed: tokens per second and GPU, utilisation, what bounds it, and on what grounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from cdk_blackwell.planning.efficiency import Efficiency, efficiency_for
from cdk_blackwell.planning.flops import FlopsConvention, attention_flops, flops_per_token
from cdk_blackwell.planning.hardware import P6_B200, Node
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Layout, Recipe
from cdk_blackwell.planning.step_time import estimate_step

__all__ = [
    "Bound",
    "FlopsConvention",
    "ThroughputBand",
    "ThroughputEstimate",
    "default_efficiency",
    "estimate_throughput",
    "flops_per_token",
    "megatron_class",
]

Bound = Literal["compute", "interconnect", "memory"]

DEFAULT_STACK: Final = "fsdp2"


def default_efficiency(node: Node = P6_B200) -> Efficiency:
    """What is assumed while nothing was measured."""
    return efficiency_for(DEFAULT_STACK, node.accelerator)


@dataclass(frozen=True, kw_only=True)
class ThroughputEstimate:
    """Predicted speed of one layout and recipe."""

    flops_per_token: float
    """By ``flops_convention``, recomputation not counted."""
    flops_convention: FlopsConvention
    flops_per_token_palm: float
    """The same with all of the attention matrix, for comparison with other publications."""
    tokens_per_second_per_gpu: float
    mfu: float
    """Model FLOPs (causal) over dense peak of the recipe's precision, 0 to 1."""
    mfu_palm: float
    """The same by the other convention."""
    hfu: float
    """Executed FLOPs, activation checkpointing's recomputation included, over the same peak."""
    bound: Bound
    """Where most of the step's time goes; ``compute`` includes waiting for the host."""
    step_seconds: float
    micro_batches: int
    """Forward passes per optimizer step."""
    phases: dict[str, float]
    """Seconds per optimizer step by phase; their sum is ``step_seconds``."""
    hidden_seconds: float
    """Communication that runs behind computation, in no phase."""
    nvlink_gb: float
    efa_gb: float
    """10^9 bytes per GPU, direction and optimizer step."""
    efficiency: str
    """Name of the efficiency used."""
    assumptions: tuple[str, ...]


def estimate_throughput(
    model: ModelShape,
    *,
    layout: Layout,
    recipe: Recipe,
    efficiency: Efficiency | None = None,
    node: Node = P6_B200,
) -> ThroughputEstimate:
    """Speed of the layout; without ``efficiency``, that of published FSDP2 runs on ``node``."""
    if efficiency is None:
        efficiency = default_efficiency(node)
    values = efficiency.values
    step = estimate_step(model, layout, recipe, values, node)
    time = step.time
    seconds = time.total
    tokens = (
        step.micro_batches * recipe.micro_batch_size * recipe.sequence_length * layout.data_parallel
    )
    speed = tokens / seconds / layout.gpus
    causal = flops_per_token(model, recipe.sequence_length)
    palm = causal + 3 * model.num_hidden_layers * attention_flops(model, recipe.sequence_length)
    peak = node.peak_flops[recipe.precision]
    groups: dict[Bound, float] = {
        "compute": time.matmul + time.attention + time.launch,
        "memory": time.elementwise + time.sharding_copies + time.optimizer,
        "interconnect": time.weights_and_gradients + time.context_parallel + time.tensor_parallel,
    }
    return ThroughputEstimate(
        flops_per_token=causal,
        flops_convention="causal",
        flops_per_token_palm=palm,
        tokens_per_second_per_gpu=speed,
        mfu=speed * causal / peak,
        mfu_palm=speed * palm / peak,
        hfu=step.executed_flops / seconds / peak,
        bound=max(groups, key=groups.__getitem__),
        step_seconds=seconds,
        micro_batches=step.micro_batches,
        phases=time._asdict(),
        hidden_seconds=step.hidden_seconds,
        nvlink_gb=step.links.nvlink / 1e9,
        efa_gb=step.links.fabric / 1e9,
        efficiency=efficiency.name,
        assumptions=_assumptions(efficiency, recipe, node, time.launch / seconds),
    )


@dataclass(frozen=True, kw_only=True)
class ThroughputBand:
    """Tokens per second and GPU, from the lower to the upper end."""

    low: float
    high: float


def megatron_class(
    model: ModelShape, *, layout: Layout, recipe: Recipe, node: Node = P6_B200
) -> ThroughputBand:
    """What tuned Megatron-class stacks reach with the same layout and recipe.

    For comparison: the trainer of this project is not such a stack, but an own image can be.
    """
    low, high = (
        estimate_throughput(
            model,
            layout=layout,
            recipe=recipe,
            efficiency=efficiency_for(stack, node.accelerator),
            node=node,
        ).tokens_per_second_per_gpu
        for stack in ("megatron_low", "megatron_high")
    )
    return ThroughputBand(low=low, high=high)


def _assumptions(
    efficiency: Efficiency, recipe: Recipe, node: Node, launch_share: float
) -> tuple[str, ...]:
    lines = efficiency.assumptions(recipe.precision, node.accelerator)
    if launch_share == 0:
        return lines
    return (
        *lines,
        f"{launch_share:.0%} of the step waits for the host to launch kernels: the model or its "
        "micro-batch is too small to keep a GPU busy",
    )

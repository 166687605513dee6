"""What was asked for on the command line; None leaves a choice to the planner."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.run_spec import GradientSync, OptimizerImplementation, Precision


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """The options of ``cdk-blackwell plan``, as typed values."""

    model: str | None = None
    """Preset or path of a ``config.json``."""
    sequence_length: int | None = None
    global_batch_tokens: int | None = None
    train_tokens: int | None = None
    tier: Tier | None = None
    nodes: int | None = None
    gpus: int | None = None
    shard_gpus: int | None = None
    context_parallel: int | None = None
    ulysses: int | None = None
    tensor_parallel: int | None = None
    reshard: bool | None = None
    """False is ``--keep-weights``."""
    gradient_sync: GradientSync | None = None
    precision: Precision | None = None
    micro_batch_size: int | None = None
    activation_checkpointing: str | None = None
    loss_chunks: int | None = None
    bf16_edge_blocks: int | None = None
    eager: bool = False
    optimizer: OptimizerImplementation | None = None
    hourly_price_usd: float | None = None
    max_cost_usd: float | None = None
    as_json: bool = False
    explain: bool = False
    details: bool = False
    chart: Path | None = None
    verify: bool = False
    measured: Path | None = None
    list_models: bool = False

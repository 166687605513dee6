"""The metrics of a run: names, units and meaning, in two tables.

The trainer prints one JSON object a line, ``{"cdk_blackwell": "metrics", "step": 10, ...}``;
SageMaker files its numbers under the name of the attempt. The newest of them also travel in
``progress.json``, from which the run controller publishes them, with what only it knows
(``RUN_METRICS``), under dimensions that outlive a run's name. Metric definitions, alarms, the
dashboard and the documentation are made from these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

LINE_KEY: Final = "cdk_blackwell"
LINE_METRICS: Final = "metrics"
LINE_EVENT: Final = "event"
"""Values of ``cdk_blackwell``: metrics lines carry numbers, event lines say what happened."""

Unit = Literal["Count", "Count/Second", "None", "Seconds", "Percent", "Gigabytes"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One number of a metrics line."""

    key: str
    """Key in the JSON line."""
    name: str
    """CloudWatch metric name."""
    unit: Unit
    meaning: str

    @property
    def regex(self) -> str:
        """Pattern with one group, as SageMaker's MetricDefinitions want it."""
        return rf'"{self.key}": (-?[0-9.]+(?:[eE][-+]?[0-9]+)?)'


METRICS: Final = (
    Metric(key="step", name="Step", unit="Count", meaning="optimizer steps completed"),
    Metric(key="loss", name="Loss", unit="None", meaning="training cross-entropy, nats per token"),
    Metric(
        key="validation_loss",
        name="ValidationLoss",
        unit="None",
        meaning="held-out cross-entropy, nats per token",
    ),
    Metric(key="tokens", name="Tokens", unit="Count", meaning="tokens trained on so far"),
    Metric(
        key="tokens_per_second",
        name="TokensPerSecond",
        unit="Count/Second",
        meaning="tokens per second over all ranks",
    ),
    Metric(
        key="mfu",
        name="ModelFlopsUtilization",
        unit="Percent",
        meaning="model FLOPs (causal convention) over dense peak; absent where peak is unknown",
    ),
    Metric(key="step_seconds", name="StepTime", unit="Seconds", meaning="seconds per step"),
    Metric(
        key="data_wait_seconds",
        name="DataWait",
        unit="Seconds",
        meaning="seconds per step that the slowest rank waited for its next batch",
    ),
    Metric(
        key="compute_spread",
        name="ComputeSpread",
        unit="None",
        meaning="time of the slowest rank over the median for the same matrix product; 1 is even",
    ),
    Metric(
        key="memory_allocated_gib",
        name="MemoryAllocated",
        unit="Gigabytes",
        meaning="peak allocated GiB per GPU since the last line, maximum over ranks",
    ),
    Metric(
        key="memory_reserved_gib",
        name="MemoryReserved",
        unit="Gigabytes",
        meaning="peak reserved GiB per GPU since the last line, maximum over ranks",
    ),
    Metric(
        key="allocator_retries",
        name="AllocatorRetries",
        unit="Count",
        meaning="allocations since the start that needed torch's cache freed, maximum over ranks",
    ),
    Metric(
        key="allocator_ooms",
        name="AllocatorOutOfMemory",
        unit="Count",
        meaning="allocations since the start that failed all the same, maximum over ranks",
    ),
    Metric(
        key="gradient_norm",
        name="GradientNorm",
        unit="None",
        meaning="global gradient norm before clipping",
    ),
    Metric(key="learning_rate", name="LearningRate", unit="None", meaning="learning rate"),
    Metric(
        key="checkpoint_seconds",
        name="CheckpointTime",
        unit="Seconds",
        meaning="from the copy of a checkpoint to its being complete, training going on meanwhile",
    ),
    Metric(
        key="checkpoint_blocked_seconds",
        name="CheckpointBlocked",
        unit="Seconds",
        meaning="for which training stood still while a checkpoint was copied",
    ),
    Metric(
        key="checkpoint_failures",
        name="CheckpointFailures",
        unit="Count",
        meaning="checkpoints in a row that could not be written; the run fails at the third",
    ),
)
"""At most 40, SageMaker's limit on metric definitions."""

DIMENSION_JOB: Final = "Job"
DIMENSION_TIER: Final = "Tier"
"""Dimensions of what the controller publishes: the same for every run and attempt of a job."""

RUN_METRICS: Final = (
    Metric(
        key="step_age_seconds",
        name="StepAge",
        unit="Seconds",
        meaning="since the last optimizer step ended; before the first, since training began",
    ),
    Metric(
        key="checkpoint_age_seconds",
        name="CheckpointAge",
        unit="Seconds",
        meaning="since the newest complete checkpoint; before the first, since training began",
    ),
    Metric(
        key="loss_not_finite",
        name="LossNotFinite",
        unit="Count",
        meaning="1 when the training loss is NaN or infinite, else 0",
    ),
    Metric(
        key="gpu_utilization",
        name="GpuUtilization",
        unit="Percent",
        meaning="mean over all GPUs, 0-100, once training steps (SageMaker's own sums are 0-800)",
    ),
    Metric(
        key="running_instances",
        name="RunningInstances",
        unit="Count",
        meaning="instances that an attempt holds and is billed for",
    ),
    Metric(
        key="spend_usd",
        name="Spend",
        unit="None",
        meaning="US dollars of the run's attempts so far; absent where no price was given",
    ),
)
"""Published by the run controller every five minutes while an attempt trains."""

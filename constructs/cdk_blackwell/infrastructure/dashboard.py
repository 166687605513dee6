"""One dashboard per job: is it learning, how fast, what limits it, and what happened last."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from cdk_blackwell.planning.contracts import NAMESPACE_OF_JOBS
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.metrics import LINE_EVENT, LINE_KEY, METRICS

DEFAULT_PERIOD: Final = Duration.minutes(5)
GPU_PERCENT_MAXIMUM: Final = 100 * P6_B200.gpus
"""SageMaker adds up the percentages of an instance's GPUs."""
EVENTS_SHOWN: Final = 50
FULL_WIDTH: Final = 24
HEIGHT: Final = 6


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One graph of the trainer's own metrics."""

    title: str
    keys: tuple[str, ...]
    """Keys of ``planning.metrics``."""


GRAPHS: Final = (
    Graph(title="Loss, nats per token", keys=("loss", "validation_loss")),
    Graph(title="Tokens per second, all GPUs", keys=("tokens_per_second",)),
    Graph(
        title="Seconds per step, and of these waiting for data",
        keys=("step_seconds", "data_wait_seconds"),
    ),
    Graph(
        title="Memory per GPU, GiB, highest rank",
        keys=("memory_allocated_gib", "memory_reserved_gib"),
    ),
)

_BY_KEY: Final = {metric.key: metric for metric in METRICS}


def search(*, dimension: str, metric: str, job: str, period: Duration) -> cloudwatch.MathExpression:
    """A line for each attempt of ``job``, found by the beginning of its name.

    SageMaker files metrics under the attempt's own name, which only a launch knows, so this is a
    search; CloudWatch alarms do not take searches.
    """
    where = f'{{{NAMESPACE_OF_JOBS},{dimension}}} MetricName="{metric}" {dimension}={job}'
    return cloudwatch.MathExpression(
        expression=f"SEARCH('{where}', 'Average', {int(period.to_seconds())})",
        label="",
        period=period,
        using_metrics={},
    )


def add_dashboard(
    scope: Construct, construct_id: str, *, job: str, alarms: Sequence[cloudwatch.IAlarm]
) -> cloudwatch.Dashboard:
    """The dashboard of ``job``, named by CloudFormation so that two stacks never meet."""
    training: list[cloudwatch.IWidget] = [
        _graph(graph.title, [_trainers(key, job) for key in graph.keys], width=FULL_WIDTH // 2)
        for graph in GRAPHS
    ]
    gpus = _graph(
        f"GPU use, percent added up over {P6_B200.gpus} GPUs (0-{GPU_PERCENT_MAXIMUM})",
        [
            search(dimension="Host", metric=metric, job=job, period=DEFAULT_PERIOD)
            for metric in ("GPUUtilization", "GPUMemoryUtilization")
        ],
        width=FULL_WIDTH,
        maximum=GPU_PERCENT_MAXIMUM,
    )
    events = cloudwatch.LogQueryWidget(
        title=f"Last {EVENTS_SHOWN} events of the trainer",
        log_group_names=[NAMESPACE_OF_JOBS],
        query_lines=[
            "fields @timestamp, @logStream, @message",
            f"filter @logStream like /^{job}-[0-9a-f]{{8}}-/",
            f'filter @message like /"{LINE_KEY}": "{LINE_EVENT}"/',
            "sort @timestamp desc",
            f"limit {EVENTS_SHOWN}",
        ],
        width=FULL_WIDTH,
        height=HEIGHT,
    )
    rows: list[list[cloudwatch.IWidget]] = [training[:2], training[2:], [gpus], [events]]
    if alarms:
        status = cloudwatch.AlarmStatusWidget(
            title="Alarms", alarms=list(alarms), width=FULL_WIDTH, height=3
        )
        rows.insert(0, [status])
    return cloudwatch.Dashboard(scope, construct_id, widgets=rows)


def _trainers(key: str, job: str) -> cloudwatch.MathExpression:
    return search(
        dimension="TrainingJobName", metric=_BY_KEY[key].name, job=job, period=DEFAULT_PERIOD
    )


def _graph(
    title: str,
    lines: Sequence[cloudwatch.IMetric],
    *,
    width: int,
    maximum: float | None = None,
) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=title,
        left=list(lines),
        # Only GPU use has a fixed scale; a loss is read best in its own range.
        left_y_axis=cloudwatch.YAxisProps(
            min=None if maximum is None else 0, max=maximum, show_units=False
        ),
        width=width,
        height=HEIGHT,
    )

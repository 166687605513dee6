"""One dashboard per job: is this run healthy, and is it worth its money?

Read from the top: what the plan promised, which alarms are on, eight numbers of now, then how they
came about. Every graph reads metrics whose dimensions outlive a run's name, so a resumed run is one
line; only the use of each instance's GPUs is searched for by the attempt's name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from cdk_blackwell.infrastructure.alarms import PERIOD_MINUTES, AlarmThresholds
from cdk_blackwell.planning.contracts import METRICS_NAMESPACE, NAMESPACE_OF_JOBS, Tier
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.metrics import (
    DIMENSION_JOB,
    DIMENSION_TIER,
    LINE_EVENT,
    LINE_KEY,
    METRICS,
    RUN_METRICS,
    Metric,
)

if TYPE_CHECKING:
    from cdk_blackwell.planning.plan import Plan

DEFAULT_PERIOD: Final = Duration.minutes(PERIOD_MINUTES)
GPU_PERCENT_MAXIMUM: Final = 100 * P6_B200.gpus
"""SageMaker adds up the percentages of an instance's GPUs."""
EVENTS_SHOWN: Final = 50
WIDTH: Final = 24
"""Columns of a CloudWatch dashboard."""
HEIGHT: Final = 6

BLUE: Final = "#1f77b4"
ORANGE: Final = "#ff7f0e"
GREEN: Final = "#2ca02c"
RED: Final = "#d62728"
PURPLE: Final = "#9467bd"
GREY: Final = "#7f7f7f"

_BY_KEY: Final = {metric.key: metric for metric in (*METRICS, *RUN_METRICS)}


@dataclass(frozen=True, kw_only=True)
class Predictions:
    """What the plan expects of the whole job, to be compared with what happens."""

    tokens_per_second: float
    """Over all GPUs."""
    mfu_percent: float
    memory_reserved_gib: float
    """Per GPU, on the fullest rank."""
    hours: float
    """All tokens, without failures."""
    usd: float | None
    """The same in money; None where no price was given."""

    @classmethod
    def of(cls, plan: Plan) -> Predictions:
        """From a job's plan."""
        gpus = plan.layout.shard_gpus * plan.layout.replicas * plan.layout.tensor_parallel
        return cls(
            tokens_per_second=plan.throughput.tokens_per_second_per_gpu * gpus,
            mfu_percent=100 * plan.throughput.mfu,
            memory_reserved_gib=plan.memory.reserved_gib,
            hours=plan.cost.hours,
            usd=plan.cost.usd,
        )


@dataclass(frozen=True, kw_only=True)
class Line:
    """One line of a graph."""

    key: str
    """Of the metric tables."""
    label: str
    colour: str
    divisor: float = 1
    """Seconds are drawn as minutes where that is what people think in."""


@dataclass(frozen=True, kw_only=True)
class Limit:
    """A horizontal line: a promise or a threshold."""

    label: str
    value: float
    colour: str = GREY


@dataclass(frozen=True, kw_only=True)
class Graph:
    """One graph, half the width of the dashboard."""

    title: str
    lines: tuple[Line, ...]
    limits: tuple[Limit, ...] = ()
    minimum: float | None = 0
    """Of the axis; None for values that are best read in their own range."""


NUMBERS: Final = (
    Line(key="tokens_per_second", label="tokens/s", colour=BLUE),
    Line(key="mfu", label="MFU %", colour=GREEN),
    Line(key="gpu_utilization", label="GPU use %", colour=BLUE),
    Line(key="loss", label="loss", colour=ORANGE),
    Line(key="memory_reserved_gib", label="memory GiB", colour=PURPLE),
    Line(key="checkpoint_age_seconds", label="checkpoint age min", colour=GREY, divisor=60),
    Line(key="running_instances", label="instances", colour=GREY),
    Line(key="spend_usd", label="spent USD", colour=RED),
)


def run_metric(
    metric: Metric | str,
    *,
    job: str,
    tier: Tier,
    period: Duration | None = None,
    statistic: str = "Average",
    label: str | None = None,
    colour: str | None = None,
) -> cloudwatch.Metric:
    """A number that the controller publishes of this job's runs; by row of the tables, or key."""
    row = _BY_KEY[metric] if isinstance(metric, str) else metric
    return cloudwatch.Metric(
        namespace=METRICS_NAMESPACE,
        metric_name=row.name,
        dimensions_map={DIMENSION_JOB: job, DIMENSION_TIER: tier},
        period=period or DEFAULT_PERIOD,
        statistic=statistic,
        label=label,
        color=colour,
    )


def search(*, metric: str, job: str, label: str) -> cloudwatch.MathExpression:
    """A line for each instance of every attempt of ``job``, found by the beginning of its name.

    SageMaker files what it measures under the attempt's own name, which only a launch knows;
    CloudWatch alarms do not take searches.
    """
    where = f'{{{NAMESPACE_OF_JOBS},Host}} MetricName="{metric}" Host={job}'
    return cloudwatch.MathExpression(
        expression=f"SEARCH('{where}', 'Average', {PERIOD_MINUTES * 60})",
        label=label,
        period=DEFAULT_PERIOD,
        using_metrics={},
    )


def graphs(
    *, thresholds: AlarmThresholds, predictions: Predictions | None, max_cost_usd: float | None
) -> tuple[Graph, ...]:
    """What is drawn, in order; promises of the plan and thresholds of alarms as lines."""
    memory = thresholds.memory_percent
    return (
        Graph(
            title="Is it learning? Loss, nats per token",
            lines=(
                Line(key="loss", label="training", colour=ORANGE),
                Line(key="validation_loss", label="held out", colour=BLUE),
            ),
            minimum=None,
        ),
        Graph(
            title="How fast? Tokens per second, all GPUs",
            lines=(Line(key="tokens_per_second", label="measured", colour=BLUE),),
            limits=_limits(("predicted", _promised(predictions, "tokens_per_second"), GREY)),
        ),
        Graph(
            title="How well used? Percent of all GPUs",
            lines=(
                Line(key="gpu_utilization", label="GPU use", colour=BLUE),
                Line(key="mfu", label="MFU", colour=GREEN),
            ),
            limits=_limits(
                ("predicted MFU", _promised(predictions, "mfu_percent"), GREY),
                ("alarm: GPU use below", thresholds.gpu_utilization_percent, RED),
            ),
        ),
        Graph(
            title="Does it fit? GiB per GPU, fullest rank",
            lines=(
                Line(key="memory_reserved_gib", label="reserved", colour=PURPLE),
                Line(key="memory_allocated_gib", label="allocated", colour=BLUE),
            ),
            limits=_limits(
                ("predicted reserved", _promised(predictions, "memory_reserved_gib"), GREY),
                ("alarm", memory and memory / 100 * P6_B200.visible_gib, RED),
            ),
        ),
        Graph(
            title="What holds it up? Seconds per step",
            lines=(
                Line(key="step_seconds", label="step", colour=BLUE),
                Line(key="data_wait_seconds", label="of it, waiting for data", colour=ORANGE),
            ),
        ),
        Graph(
            title="What would a crash cost? Minutes since",
            lines=(
                Line(
                    key="checkpoint_age_seconds",
                    label="complete checkpoint",
                    colour=PURPLE,
                    divisor=60,
                ),
                Line(key="step_age_seconds", label="last step", colour=BLUE, divisor=60),
            ),
            limits=_limits(
                ("alarm: checkpoint", thresholds.checkpoint_age_minutes, RED),
                ("alarm: no step", thresholds.no_progress_minutes, ORANGE),
            ),
        ),
        Graph(
            title="What has it cost? US dollars, all attempts",
            lines=(Line(key="spend_usd", label="spent", colour=RED),),
            limits=_limits(
                ("predicted for all tokens", _promised(predictions, "usd"), GREY),
                ("max_cost_usd", max_cost_usd, RED),
            ),
        ),
    )


def add_dashboard(
    scope: Construct,
    construct_id: str,
    *,
    job: str,
    tier: Tier,
    alarms: Sequence[cloudwatch.IAlarm] = (),
    thresholds: AlarmThresholds | None = None,
    predictions: Predictions | None = None,
    max_cost_usd: float | None = None,
) -> cloudwatch.Dashboard:
    """The dashboard of ``job``, named by CloudFormation so that two stacks never meet."""
    states: list[list[cloudwatch.IWidget]] = [[_alarm_states(alarms)]] if alarms else []
    halves: list[cloudwatch.IWidget] = [
        _graph(graph, job, tier)
        for graph in graphs(
            thresholds=thresholds or AlarmThresholds(),
            predictions=predictions,
            max_cost_usd=max_cost_usd,
        )
    ]
    halves.append(_hosts(job))
    rows: list[list[cloudwatch.IWidget]] = [
        [cloudwatch.TextWidget(markdown=_promise(job, tier, predictions), width=WIDTH, height=3)],
        *states,
        [
            cloudwatch.SingleValueWidget(
                title="Now",
                metrics=[_line(line, job, tier) for line in NUMBERS],
                sparkline=True,
                width=WIDTH,
                height=4,
            )
        ],
        *(halves[at : at + 2] for at in range(0, len(halves), 2)),
        [_events(job)],
    ]
    return cloudwatch.Dashboard(scope, construct_id, widgets=rows)


def _promised(predictions: Predictions | None, name: str) -> float | None:
    value: float | None = getattr(predictions, name, None)
    return value


def _limits(*limits: tuple[str, float | None, str]) -> tuple[Limit, ...]:
    return tuple(
        Limit(label=label, value=value, colour=colour)
        for label, value, colour in limits
        if value is not None
    )


def _promise(job: str, tier: Tier, predictions: Predictions | None) -> str:
    title = f"## {job} ({tier} tier)"
    if predictions is None:
        return f"{title}\nNumbers arrive every {PERIOD_MINUTES} minutes while a run trains."
    money = "" if predictions.usd is None else f", **{predictions.usd:,.0f} USD**"
    return (
        f"{title}\n"
        f"**Predicted by the plan:** **{predictions.tokens_per_second:,.0f} tokens/s** at "
        f"**{predictions.mfu_percent:.0f} % MFU**, "
        f"**{predictions.memory_reserved_gib:.0f} GiB** reserved of {P6_B200.visible_gib:.0f}, "
        f"**{predictions.hours:,.1f} hours**{money} without failures.\n\n"
        "A run that stays far below is not worth its money as it is: find the reason below, or "
        f"measure with a trial. Numbers arrive every {PERIOD_MINUTES} minutes while a run trains."
    )


def _line(line: Line, job: str, tier: Tier) -> cloudwatch.IMetric:
    metric = run_metric(line.key, job=job, tier=tier, label=line.label, colour=line.colour)
    if line.divisor == 1:
        return metric
    return cloudwatch.MathExpression(
        expression=f"{line.key} / {line.divisor:g}",
        using_metrics={line.key: metric},
        label=line.label,
        color=line.colour,
        period=DEFAULT_PERIOD,
    )


def _graph(graph: Graph, job: str, tier: Tier) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=graph.title,
        left=[_line(line, job, tier) for line in graph.lines],
        left_y_axis=cloudwatch.YAxisProps(min=graph.minimum, show_units=False),
        left_annotations=[
            cloudwatch.HorizontalAnnotation(
                label=limit.label, value=limit.value, color=limit.colour
            )
            for limit in graph.limits
        ],
        width=WIDTH // 2,
        height=HEIGHT,
    )


def _hosts(job: str) -> cloudwatch.GraphWidget:
    return cloudwatch.GraphWidget(
        title=f"Is one instance slow? GPU use of each, 0-{GPU_PERCENT_MAXIMUM} %",
        left=[search(metric="GPUUtilization", job=job, label="")],
        left_y_axis=cloudwatch.YAxisProps(min=0, max=GPU_PERCENT_MAXIMUM, show_units=False),
        width=WIDTH // 2,
        height=HEIGHT,
    )


def _alarm_states(alarms: Sequence[cloudwatch.IAlarm]) -> cloudwatch.AlarmStatusWidget:
    return cloudwatch.AlarmStatusWidget(
        title="Alarms", alarms=list(alarms), width=WIDTH, height=3 if len(alarms) < 7 else 4
    )


def _events(job: str) -> cloudwatch.LogQueryWidget:
    return cloudwatch.LogQueryWidget(
        title=f"Last {EVENTS_SHOWN} events of the trainer",
        log_group_names=[NAMESPACE_OF_JOBS],
        query_lines=[
            "fields @timestamp, @logStream, @message",
            f"filter @logStream like /^{job}-[0-9a-f]{{8}}-/",
            f'filter @message like /"{LINE_KEY}": "{LINE_EVENT}"/',
            "sort @timestamp desc",
            f"limit {EVENTS_SHOWN}",
        ],
        width=WIDTH,
        height=HEIGHT,
    )

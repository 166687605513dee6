"""The numbers of a running job, as CloudWatch metrics whose dimensions outlive a run's name.

SageMaker files metrics under the attempt's own name, which only a launch knows and no alarm can
search. The controller knows it: while an attempt trains, it reads ``progress.json`` and prints one
line in CloudWatch's embedded metric format, which CloudWatch extracts from a Lambda's log. So the
metrics need no PutMetricData, no endpoint in the job's network, no filter on the account's shared
log group, and work under network isolation. Nothing here may stand in the way of the run's life:
what fails is logged, and the next sweep tries again.
"""

from __future__ import annotations

import json
import logging
import math
import sys
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.jobs import Observation
from cdk_blackwell.lifecycle.handler.records import Attempt
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.planning.contracts import METRICS_NAMESPACE, NAMESPACE_OF_JOBS
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.metrics import (
    DIMENSION_JOB,
    DIMENSION_TIER,
    METRICS,
    RUN_METRICS,
    Metric,
)
from cdk_blackwell.planning.records import Progress

GPU_WINDOW_SECONDS: Final = 300
"""SageMaker's metrics of instances arrive every minute; their mean over one sweep is taken."""
_TABLE: Final[Mapping[str, Metric]] = {metric.key: metric for metric in (*METRICS, *RUN_METRICS)}

log = logging.getLogger(__name__)


def publish(services: Services, attempt: Attempt, seen: Observation) -> None:
    """Print the numbers of an attempt that trains, and its last ones when it has just ended."""
    if attempt.state == "ended" or seen.training_began is None:
        return
    try:
        record = _record_of(services, attempt, seen, seen.training_began)
    except Exception:
        log.exception("no metrics of %s in this round", attempt.job_name)
        return
    if record is not None:
        sys.stdout.write(json.dumps(record) + "\n")


def embedded_metrics(
    values: Mapping[str, float], *, job: str, tier: str, now: float, properties: Mapping[str, str]
) -> dict[str, Any]:
    """One record in the embedded metric format: numbers by key of the tables, as metrics.

    ``properties`` are found in the log only; as dimensions they would make a metric per attempt.
    Numbers that are not finite are left out, since CloudWatch takes none.
    """
    finite = {
        _TABLE[key]: value
        for key, value in values.items()
        if key in _TABLE and math.isfinite(value)
    }
    return {
        "_aws": {
            "Timestamp": round(now * 1000),
            "CloudWatchMetrics": [
                {
                    "Namespace": METRICS_NAMESPACE,
                    "Dimensions": [[DIMENSION_JOB, DIMENSION_TIER]],
                    "Metrics": [{"Name": m.name, "Unit": m.unit} for m in finite],
                }
            ],
        },
        DIMENSION_JOB: job,
        DIMENSION_TIER: tier,
        **properties,
        **{metric.name: value for metric, value in finite.items()},
    }


def _record_of(
    services: Services, attempt: Attempt, seen: Observation, began: float
) -> dict[str, Any] | None:
    run = services.store.run(attempt.owner, attempt.run_id)
    if run is None:
        return None
    definition = run.definition
    now = services.clock.now()
    progress = services.storage.progress(definition, attempt.run_id)
    if progress is not None and progress.attempt != attempt.attempt:
        progress = None  # An earlier attempt's last word.
    values = {
        **(_of_trainer(progress) if progress else {}),
        **(_of_age(progress, began, now) if not seen.terminal else {}),
        "running_instances": 0.0 if seen.terminal else float(definition.instance_count),
    }
    if not seen.terminal and progress and progress.stepped_at:
        utilization = _gpu_utilization(services, attempt.job_name, definition.instance_count, now)
        values |= {} if utilization is None else {"gpu_utilization": utilization}
    spend = _spend_usd(services, attempt, seen, definition, now)
    values |= {} if spend is None else {"spend_usd": spend}
    return embedded_metrics(
        values,
        job=definition.job,
        tier=str(definition.run["tier"]),
        now=now,
        properties={"RunId": attempt.run_id, "TrainingJobName": attempt.job_name},
    )


def _of_trainer(progress: Progress) -> dict[str, float]:
    values = {
        **progress.metrics,
        "step": float(progress.step),
        "tokens": float(progress.tokens),
    }
    if progress.loss is not None:
        values |= {
            "loss": progress.loss,
            "loss_not_finite": float(not math.isfinite(progress.loss)),
        }
    return values


def _of_age(progress: Progress | None, began: float, now: float) -> dict[str, float]:
    stepped = progress.stepped_at if progress else None
    saved = progress.checkpointed_at if progress else None
    return {
        "step_age_seconds": max(0.0, now - _seconds(stepped, began)),
        "checkpoint_age_seconds": max(0.0, now - _seconds(saved, began)),
    }


def _seconds(timestamp: str | None, otherwise: float) -> float:
    return otherwise if timestamp is None else datetime.fromisoformat(timestamp).timestamp()


def _gpu_utilization(
    services: Services, job_name: str, instance_count: int, now: float
) -> float | None:
    """Mean over all GPUs in percent; None before SageMaker has measured any."""
    until = datetime.fromtimestamp(now, UTC)
    queries = [
        {
            "Id": f"host{number}",
            "MetricStat": {
                "Metric": {
                    "Namespace": NAMESPACE_OF_JOBS,
                    "MetricName": "GPUUtilization",
                    "Dimensions": [{"Name": "Host", "Value": f"{job_name}/algo-{number}"}],
                },
                "Period": 60,
                "Stat": "Average",
            },
        }
        for number in range(1, instance_count + 1)
    ]
    answer = services.cloudwatch.get_metric_data(
        MetricDataQueries=queries,
        StartTime=until - timedelta(seconds=GPU_WINDOW_SECONDS),
        EndTime=until,
    )
    values = [value for result in answer["MetricDataResults"] for value in result["Values"]]
    # SageMaker adds up the percentages of an instance's GPUs.
    return sum(values) / len(values) / P6_B200.gpus if values else None


def _spend_usd(
    services: Services, attempt: Attempt, seen: Observation, definition: JobDefinition, now: float
) -> float | None:
    """Of all attempts of the run; None where no price was given."""
    if definition.hourly_price_usd is None:
        return None
    earlier = [
        services.jobs.describe(each.job_name)
        for each in services.store.attempts(attempt.owner, attempt.run_id)
        if each.job_name != attempt.job_name
    ]
    seconds = sum(_billed_seconds(each, now) for each in (*earlier, seen))
    return seconds / 3600 * definition.instance_count * definition.hourly_price_usd


def _billed_seconds(seen: Observation | None, now: float) -> float:
    if seen is None or seen.training_began is None:
        return 0.0
    return max(0.0, (seen.training_ended or now) - seen.training_began)

"""Alarms watch what outlives a run's name; the dashboard draws only what is published."""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import pytest
from aws_cdk import App, Stack
from aws_cdk import aws_events as events
from aws_cdk import aws_sns as sns
from aws_cdk.assertions import Template

from cdk_blackwell.infrastructure.alarms import RUN_ALARMS, AlarmThresholds
from cdk_blackwell.infrastructure.dashboard import Predictions, graphs
from cdk_blackwell.infrastructure.monitoring import TrainingMonitoring
from cdk_blackwell.planning.metrics import METRICS, RUN_METRICS

PREDICTIONS = Predictions(
    tokens_per_second=66_464, mfu_percent=19, memory_reserved_gib=120, hours=83.6, usd=9_524
)
PUBLISHED = {metric.name for metric in (*METRICS, *RUN_METRICS)}


def monitor(
    thresholds: AlarmThresholds | None = None,
    *,
    max_cost_usd: float | None = 10_000,
    predictions: Predictions | None = PREDICTIONS,
) -> Template:
    stack = Stack(App(), "Stack")
    monitoring = TrainingMonitoring(
        stack,
        "Monitoring",
        job="pretrain",
        tier="mid",
        thresholds=thresholds,
        max_cost_usd=max_cost_usd,
    )
    rule = events.Rule(stack, "Failed", event_pattern=events.EventPattern(source=["x"]))
    monitoring.alarm_on_failed_attempts(rule)
    monitoring.add_dashboard(predictions)
    return Template.from_stack(stack)


def alarms(template: Template) -> dict[str, dict[str, Any]]:
    return {
        re.sub(r"^Monitoring|[0-9A-F]{8}$", "", name): resource["Properties"]
        for name, resource in template.find_resources("AWS::CloudWatch::Alarm").items()
    }


def body(template: Template) -> dict[str, Any]:
    (dashboard,) = template.find_resources("AWS::CloudWatch::Dashboard").values()
    text = dashboard["Properties"]["DashboardBody"]
    parts = text["Fn::Join"][1] if isinstance(text, dict) else [text]
    found = json.loads("".join(part if isinstance(part, str) else "us-west-2" for part in parts))
    assert isinstance(found, dict)
    return found


def test_every_threshold_has_its_alarm_in_the_metrics_own_unit() -> None:
    found = {name: alarm["Threshold"] for name, alarm in alarms(monitor()).items()}
    assert found == {
        "NoProgress": 1800,
        "LowGpuUse": 50,
        "MemoryNearLimit": pytest.approx(0.97 * 178.35),
        "LossNotFinite": 1,
        "DataWait": 5,
        "CheckpointAge": 3600,
        "SpendNearCeiling": 8_000,
        "FailedAttempt": 1,
    }
    assert len(fields(AlarmThresholds)) == len(found)


def test_alarms_read_dimensions_that_outlive_a_runs_name() -> None:
    own = [alarm for name, alarm in alarms(monitor()).items() if name != "FailedAttempt"]
    for alarm in own:
        metrics = alarm.get("Metrics") or [{"MetricStat": {"Metric": alarm}}]
        for metric in (each["MetricStat"]["Metric"] for each in metrics if "MetricStat" in each):
            assert metric["Namespace"] == "CdkBlackwell"
            assert metric["MetricName"] in PUBLISHED
            assert metric["Dimensions"] == [
                {"Name": "Job", "Value": "pretrain"},
                {"Name": "Tier", "Value": "mid"},
            ]


def test_alarms_are_silent_without_a_run_and_tell_the_topic() -> None:
    template = monitor()
    (topic,) = template.find_resources("AWS::SNS::Topic")
    for alarm in alarms(template).values():
        assert alarm["TreatMissingData"] == "notBreaching"
        assert alarm["AlarmActions"] == [{"Ref": topic}]
        assert alarm["AlarmDescription"]


def test_low_use_and_data_wait_need_half_an_hour() -> None:
    found = alarms(monitor())
    for name in ("LowGpuUse", "DataWait"):
        assert found[name]["DatapointsToAlarm"] == 6
        # A value that came just too late for its five minutes does not begin the half hour anew.
        assert found[name]["EvaluationPeriods"] == 7
    assert found["LowGpuUse"]["ComparisonOperator"] == "LessThanThreshold"
    (expression,) = (m for m in found["DataWait"]["Metrics"] if "Expression" in m)
    assert expression["Expression"] == "100 * data_wait_seconds / step_seconds"


def test_fails_for_a_topic_that_alarms_cannot_tell() -> None:
    stack = Stack(App(), "Fifo")
    topic = sns.Topic(stack, "Topic", fifo=True)
    with pytest.raises(ValueError, match="Fifo/Topic is a FIFO topic"):
        TrainingMonitoring(stack, "Monitoring", job="job", tier="small", topic=topic)


@pytest.mark.parametrize("field", [field.name for field in fields(AlarmThresholds)])
def test_none_switches_one_alarm_off(field: str) -> None:
    every = alarms(monitor())
    fewer = alarms(monitor(AlarmThresholds(**{field: None})))
    (gone,) = set(every) - set(fewer)
    owner = {rule.threshold: rule.construct_id for rule in RUN_ALARMS}
    assert gone == owner.get(field, "FailedAttempt")


def test_without_a_ceiling_there_is_no_alarm_on_spend() -> None:
    assert "SpendNearCeiling" not in alarms(monitor(max_cost_usd=None))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"memory_percent": 101}, "memory_percent is 101; a share is at most 100 percent"),
        ({"no_progress_minutes": 0}, "no_progress_minutes is 0; give a number above 0, or None"),
        ({"failed_attempts": "1"}, "failed_attempts is '1'"),
        ({"spend_percent": float("nan")}, "spend_percent is nan"),
    ],
)
def test_thresholds_that_make_no_sense_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        AlarmThresholds(**values)


def test_the_dashboard_answers_health_and_worth_from_published_metrics() -> None:
    widgets = body(monitor())["widgets"]
    drawn = {
        entry[1]
        for widget in widgets
        for entry in widget["properties"].get("metrics", [])
        if entry[0] == "CdkBlackwell"
    }
    assert drawn <= PUBLISHED
    assert {
        "TokensPerSecond",
        "ModelFlopsUtilization",
        "GpuUtilization",
        "Loss",
        "MemoryReserved",
        "DataWait",
        "CheckpointAge",
        "Spend",
    } <= drawn


def test_the_plan_and_the_alarms_are_drawn_as_lines() -> None:
    limits = {
        (graph.title.split("?")[0], limit.label): limit.value
        for graph in graphs(
            thresholds=AlarmThresholds(), predictions=PREDICTIONS, max_cost_usd=10_000
        )
        for limit in graph.limits
    }
    assert limits["How fast", "predicted"] == 66_464
    assert limits["How well used", "predicted MFU"] == 19
    assert limits["Does it fit", "predicted reserved"] == 120
    assert limits["What has it cost", "max_cost_usd"] == 10_000
    assert limits["What would a crash cost", "alarm: checkpoint"] == 60


def test_the_text_says_what_the_plan_promised() -> None:
    (text,) = (w for w in body(monitor())["widgets"] if w["type"] == "text")
    markdown = text["properties"]["markdown"]
    for part in ("pretrain (mid tier)", "66,464 tokens/s", "19 % MFU", "83.6 hours", "9,524 USD"):
        assert part in markdown


def test_the_dashboard_works_without_predictions_ceiling_and_alarms() -> None:
    nothing = AlarmThresholds(**{field.name: None for field in fields(AlarmThresholds)})
    template = monitor(nothing, max_cost_usd=None, predictions=None)
    assert not alarms(template)
    assert not [w for w in body(template)["widgets"] if w["type"] == "alarm"]


def test_every_instance_is_seen_on_sagemakers_own_scale() -> None:
    (hosts,) = (w for w in body(monitor())["widgets"] if "GPUUtilization" in json.dumps(w))
    assert hosts["properties"]["yAxis"]["left"] == {"min": 0, "max": 800, "showUnits": False}
    assert "Host=pretrain" in json.dumps(hosts)


def test_widgets_fill_rows_without_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for widget in body(monitor())["widgets"]:
        cells = {
            (x, y)
            for x in range(widget["x"], widget["x"] + widget["width"])
            for y in range(widget["y"], widget["y"] + widget["height"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells
    rows = max(y for _, y in taken) + 1
    assert len(taken) == 24 * rows

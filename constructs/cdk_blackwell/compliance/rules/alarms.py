"""Somebody must hear that a run fails or hangs."""

from __future__ import annotations

from collections.abc import Iterator

from cdk_blackwell.compliance.requests import RUN_TYPE
from cdk_blackwell.compliance.rule import Finding, Rule
from cdk_blackwell.compliance.templates import Templates

STEP_AGE = "StepAge"


def check(templates: Templates) -> Iterator[Finding]:
    """Templates with a run and without alarms on failure and on no progress that tell anybody."""
    for run in templates.resources(RUN_TYPE):
        alarms = [
            alarm.properties
            for alarm in run.template.resources.values()
            if alarm.type == "AWS::CloudWatch::Alarm" and alarm.find("AlarmActions")
        ]
        missing = []
        if not any(alarm.get("Namespace") == "AWS/Events" for alarm in alarms):
            missing.append("failed attempts")
        if not any(alarm.get("MetricName") == STEP_AGE for alarm in alarms):
            missing.append("no progress")
        if missing:
            yield Finding(resource=run, found=f"no alarm tells of {' or '.join(missing)}")


RULE = Rule(
    id="Alarms",
    title="A run has alarms on failure and on no progress.",
    why="An instance that hangs costs about 100 USD an hour until somebody looks.",
    fix=(
        "Leave AlarmThresholds.failed_attempts and no_progress_minutes on, and subscribe to "
        "the job's topic."
    ),
    severity="warning",
    check=check,
)

"""What a job reports and whom it tells: metric definitions, topic, alarms, dashboard."""

from __future__ import annotations

from typing import Final

from aws_cdk import Annotations, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from cdk_blackwell.infrastructure.alarms import (
    PERIOD_MINUTES,
    RUN_ALARMS,
    AlarmThresholds,
    RunAlarm,
)
from cdk_blackwell.infrastructure.dashboard import Predictions, add_dashboard, run_metric
from cdk_blackwell.infrastructure.kinds import check_kinds
from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.metrics import METRICS, Metric

_COMPARISONS: Final = {
    "above": cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
    "below": cloudwatch.ComparisonOperator.LESS_THAN_THRESHOLD,
}


def metric_definitions() -> list[dict[str, str]]:
    """SageMaker's MetricDefinitions: what its console draws from the container's log."""
    return [{"Name": metric.name, "Regex": metric.regex} for metric in METRICS]


class TrainingMonitoring(Construct):
    """The job's SNS topic, alarms and dashboard.

    Alarms and graphs read what the run controller publishes, whose dimensions (job and tier)
    outlive a run's name. Where a job has no controller of this library, nothing is published and
    the alarms stay silent.

    :param job: the job's prefix.
    :param tier: the job's size tier.
    :param thresholds: when the alarms go off. Default: the defaults of ``AlarmThresholds``.
    :param max_cost_usd: ceiling that the alarm on spend measures against. Default: no such alarm.
    :param topic: tells people; may be imported, and then its own policy, and its key's, must let
        CloudWatch and the run controller publish. Default: a new one.
    :param encryption_key: encrypts the new topic; its policy must admit CloudWatch (the key of
        ``Foundation`` does). Default: not encrypted with a customer-managed key.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        job: str,
        tier: Tier,
        thresholds: AlarmThresholds | None = None,
        max_cost_usd: float | None = None,
        topic: sns.ITopic | None = None,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        check_kinds(TrainingMonitoring.__init__, locals())
        super().__init__(scope, construct_id)
        if topic is not None and topic.fifo:
            raise ValueError(
                f"topic {topic.node.path} is a FIFO topic, which CloudWatch's alarms cannot tell "
                "anything: give a standard topic"
            )
        self._job, self._tier = job, tier
        self._max_cost_usd = max_cost_usd
        self._alarms: list[cloudwatch.Alarm] = []
        self.thresholds: AlarmThresholds = thresholds or AlarmThresholds()
        self.topic: sns.ITopic = topic or sns.Topic(
            self,
            "Topic",
            display_name=f"Training job {job}",
            master_key=encryption_key,
            enforce_ssl=True,
        )
        admitted = self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Alarms",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )
        if not admitted.statement_added:
            Annotations.of(self).add_warning_v2(
                "cdk-blackwell:imported-topic",
                f"the topic {self.topic.node.path} is imported, so its policy is not changed: it, "
                "and its key's, must let cloudwatch.amazonaws.com publish for this account, or no "
                "alarm reaches anybody",
            )
        for rule in RUN_ALARMS:
            self._add_run_alarm(rule)

    def alarm(
        self,
        construct_id: str,
        *,
        metric: cloudwatch.IMetric,
        description: str,
        threshold: float = 1,
        evaluation_periods: int = 1,
        datapoints: int | None = None,
        comparison: cloudwatch.ComparisonOperator = _COMPARISONS["above"],
    ) -> cloudwatch.Alarm:
        """Tell the topic when ``metric`` is on the wrong side; no data is no reason to.

        :param metric: any of CloudWatch, or metric math.
        :param description: what the message says: what happened and where to look.
        :param threshold: in the metric's own unit. Default: 1, so that any event counts.
        :param evaluation_periods: how many of the metric's periods are looked at. Default: 1.
        :param datapoints: how many of them must be wrong. Default: all.
        :param comparison: Default: the threshold or more is wrong.
        """
        alarm = cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            threshold=threshold,
            evaluation_periods=evaluation_periods,
            datapoints_to_alarm=datapoints,
            comparison_operator=comparison,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=description,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        self._alarms.append(alarm)
        return alarm

    def alarm_on_failed_attempts(self, rule: events.Rule) -> cloudwatch.Alarm | None:
        """Alarm when ``rule`` (this job's Failed events) fires; None where it is switched off.

        It counts attempts, not runs: the controller may resume after one. It depends on
        EventBridge alone, so a broken controller cannot hide a failed job.
        """
        if self.thresholds.failed_attempts is None:
            return None
        return self.alarm(
            "FailedAttempt",
            metric=cloudwatch.Metric(
                namespace="AWS/Events",
                metric_name="TriggeredRules",
                dimensions_map={"RuleName": rule.rule_name},
                statistic="Sum",
                period=Duration.minutes(PERIOD_MINUTES),
            ),
            threshold=self.thresholds.failed_attempts,
            description=f"An attempt of training job {self._job} failed",
        )

    def metric(
        self, metric: Metric, *, period: Duration | None = None, statistic: str = "Average"
    ) -> cloudwatch.Metric:
        """One of the numbers of this job's runs, for graphs and alarms alike.

        :param metric: a row of ``planning.metrics.METRICS`` or ``RUN_METRICS``.
        :param period: Default: 5 minutes, in which one value is published.
        :param statistic: of several values in a longer period. Default: Average.
        """
        return run_metric(
            metric, job=self._job, tier=self._tier, period=period, statistic=statistic
        )

    def add_dashboard(self, predictions: Predictions | None = None) -> cloudwatch.Dashboard:
        """Add the job's dashboard, with the state of every alarm made until now.

        :param predictions: what the plan expects, drawn beside what happens. Default: nothing.
        """
        return add_dashboard(
            self,
            "Dashboard",
            job=self._job,
            tier=self._tier,
            alarms=self._alarms,
            thresholds=self.thresholds,
            predictions=predictions,
            max_cost_usd=self._max_cost_usd,
        )

    def _add_run_alarm(self, rule: RunAlarm) -> None:
        given = getattr(self.thresholds, rule.threshold)
        limit = None if given is None else rule.scale(given, self._max_cost_usd)
        if limit is None:
            return
        metrics = {
            key: run_metric(key, job=self._job, tier=self._tier, statistic=rule.statistic)
            for key in rule.keys
        }
        self.alarm(
            rule.construct_id,
            metric=(
                metrics[rule.keys[0]]
                if rule.expression is None
                else cloudwatch.MathExpression(
                    expression=rule.expression,
                    using_metrics=dict(metrics),
                    label=rule.construct_id,
                    period=Duration.minutes(PERIOD_MINUTES),
                )
            ),
            threshold=limit,
            # One more than are needed: the controller's clock is not CloudWatch's, so that two
            # values may fall into one period and none into the next.
            evaluation_periods=rule.periods + 1 if rule.periods > 1 else 1,
            datapoints=rule.periods if rule.periods > 1 else None,
            comparison=_COMPARISONS[rule.side],
            description=rule.text.format(job=self._job, limit=given),
        )

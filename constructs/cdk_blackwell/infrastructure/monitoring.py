"""What a job reports and whom it tells: metric definitions, topic, alarms, dashboard."""

from __future__ import annotations

from aws_cdk import Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_cloudwatch_actions as actions
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_sns as sns
from constructs import Construct

from cdk_blackwell.infrastructure.dashboard import DEFAULT_PERIOD, add_dashboard, search
from cdk_blackwell.planning.metrics import METRICS, Metric


def metric_definitions() -> list[dict[str, str]]:
    """SageMaker's MetricDefinitions: what its console draws from the container's log."""
    return [{"Name": metric.name, "Regex": metric.regex} for metric in METRICS]


class TrainingMonitoring(Construct):
    """The job's SNS topic, alarms and dashboard.

    Alarms watch only dimensions that outlive a run's name.

    :param job: the job's prefix.
    :param encryption_key: encrypts the topic; its policy must admit CloudWatch (the key of
        ``Foundation`` does). Default: not encrypted with a customer-managed key.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        job: str,
        encryption_key: kms.IKey | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._job = job
        self._alarms: list[cloudwatch.Alarm] = []
        self.topic: sns.Topic = sns.Topic(
            self,
            "Topic",
            display_name=f"Training job {job}",
            master_key=encryption_key,
            enforce_ssl=True,
        )
        self.topic.add_to_resource_policy(
            iam.PolicyStatement(
                sid="Alarms",
                principals=[iam.ServicePrincipal("cloudwatch.amazonaws.com")],
                actions=["sns:Publish"],
                resources=[self.topic.topic_arn],
                conditions={"StringEquals": {"aws:SourceAccount": Stack.of(self).account}},
            )
        )

    def alarm(
        self, construct_id: str, *, metric: cloudwatch.Metric, description: str
    ) -> cloudwatch.Alarm:
        """Tell the topic as soon as ``metric`` is 1 or more in one period."""
        alarm = cloudwatch.Alarm(
            self,
            construct_id,
            metric=metric,
            threshold=1,
            evaluation_periods=1,
            comparison_operator=cloudwatch.ComparisonOperator.GREATER_THAN_OR_EQUAL_TO_THRESHOLD,
            treat_missing_data=cloudwatch.TreatMissingData.NOT_BREACHING,
            alarm_description=description,
        )
        alarm.add_alarm_action(actions.SnsAction(self.topic))
        self._alarms.append(alarm)
        return alarm

    def alarm_on_failed_attempts(self, rule: events.Rule) -> cloudwatch.Alarm:
        """Alarm when ``rule`` (this job's Failed events) fires.

        It counts attempts, not runs: the controller may resume after one. It depends on
        EventBridge alone, so a broken controller cannot hide a failed job.
        """
        return self.alarm(
            "FailedAttempt",
            metric=cloudwatch.Metric(
                namespace="AWS/Events",
                metric_name="TriggeredRules",
                dimensions_map={"RuleName": rule.rule_name},
                statistic="Sum",
                period=Duration.minutes(5),
            ),
            description=f"An attempt of training job {self._job} failed",
        )

    def metric(
        self, metric: Metric, *, period: Duration | None = None
    ) -> cloudwatch.MathExpression:
        """One of the trainer's metrics, a line for each attempt of this job. For dashboards.

        :param period: Default: 5 minutes.
        """
        return search(
            dimension="TrainingJobName",
            metric=metric.name,
            job=self._job,
            period=period or DEFAULT_PERIOD,
        )

    def add_dashboard(self) -> cloudwatch.Dashboard:
        """Add the job's dashboard, with the state of every alarm made until now."""
        return add_dashboard(self, "Dashboard", job=self._job, alarms=self._alarms)

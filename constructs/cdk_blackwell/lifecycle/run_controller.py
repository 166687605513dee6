"""RunController: the one Lambda that launches, watches, resumes and stops a job's runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from aws_cdk import Aws, CustomResource, Duration, RemovalPolicy, Stack
from aws_cdk import aws_dynamodb as dynamodb
from aws_cdk import aws_events as events
from aws_cdk import aws_events_targets as targets
from aws_cdk import aws_iam as iam
from aws_cdk import aws_kms as kms
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_logs as logs
from aws_cdk import aws_s3 as s3
from aws_cdk import aws_sqs as sqs
from constructs import Construct, IDependable

from cdk_blackwell.infrastructure.monitoring import TrainingMonitoring
from cdk_blackwell.lifecycle.asset import AWS_DATA_PATH, HANDLER, stage_controller, staging_folder
from cdk_blackwell.lifecycle.handler.definition import (
    ENV_STACK_ID,
    ENV_TABLE,
    ENV_TOPIC,
    PROPERTY_DEFINITION,
    PROPERTY_RUN_ID,
    RESOURCE_TYPE,
    TABLE_PARTITION_KEY,
    TABLE_SORT_KEY,
)
from cdk_blackwell.lifecycle.handler.happenings import DETAIL_TYPES, EVENT_SOURCE, Happening
from cdk_blackwell.lifecycle.handler.permissions import (
    FUNCTION_MEMORY_MIB,
    FUNCTION_TIMEOUT_SECONDS,
    PERMISSIONS,
    Permission,
)
from cdk_blackwell.lifecycle.handler.schedule import KEY_ID, KEY_NAME, KEY_TIME, check_name

RECONCILE_MINUTES: Final = 5
"""Job events are best effort; what they miss is found this often."""
CUSTOM_RESOURCE_TIMEOUT_SECONDS: Final = 3600
"""CloudFormation's maximum. The controller answers at the latest at 55 minutes."""

STATUSES_WITHOUT_ALARM: Final = ("InProgress", "Completed", "Stopping", "Stopped")
STATUSES_WITH_ALARM: Final = ("Failed",)
STATUSES: Final = (*STATUSES_WITHOUT_ALARM, *STATUSES_WITH_ALARM)


class RunController(Construct):
    """Function, table, dead-letter queue and rules of one job; ``add_run`` adds the run itself.

    :param job: the job's prefix; the function may touch only training jobs that begin with it.
    :param training_role: the one role it may pass to SageMaker.
    :param bundle_bucket: bucket of the training bundle's asset.
    :param bundle_key: key of that asset.
    :param checkpoint_bucket: receives the frozen run.
    :param dataset_bucket: holds the dataset.
    :param dataset_manifest_key: object that must exist before a launch.
    :param encryption_keys: keys of those buckets, where they have their own.
    :param monitoring: the job's topic and alarms.
    :param topic_key: key of the topic. Default: it has none.
    :param training_plan_arn: the plan that its jobs may use. Default: none.
    :param log_group: receives the function's log. Default: a new group that keeps it for 3 months.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        job: str,
        training_role: iam.IRole,
        bundle_bucket: s3.IBucket,
        bundle_key: str,
        checkpoint_bucket: s3.IBucket,
        dataset_bucket: s3.IBucket,
        dataset_manifest_key: str,
        encryption_keys: Sequence[kms.IKey],
        monitoring: TrainingMonitoring,
        topic_key: kms.IKey | None = None,
        training_plan_arn: str | None = None,
        log_group: logs.ILogGroup | None = None,
    ) -> None:
        super().__init__(scope, construct_id)
        self._job = job
        stack = Stack.of(self)
        # Claims and run history are keyed by the stack's own id, so they are of no use after it.
        self.table: dynamodb.Table = dynamodb.Table(
            self,
            "Table",
            partition_key=dynamodb.Attribute(
                name=TABLE_PARTITION_KEY, type=dynamodb.AttributeType.STRING
            ),
            sort_key=dynamodb.Attribute(name=TABLE_SORT_KEY, type=dynamodb.AttributeType.STRING),
            billing_mode=dynamodb.BillingMode.PAY_PER_REQUEST,
            point_in_time_recovery_specification=dynamodb.PointInTimeRecoverySpecification(
                point_in_time_recovery_enabled=True
            ),
            removal_policy=RemovalPolicy.DESTROY,
        )
        self.dead_letter_queue: sqs.Queue = sqs.Queue(
            self,
            "DeadLetters",
            encryption=sqs.QueueEncryption.SQS_MANAGED,
            enforce_ssl=True,
            retention_period=Duration.days(14),
            removal_policy=RemovalPolicy.DESTROY,
        )
        log_group = log_group or logs.LogGroup(
            self,
            "Log",
            retention=logs.RetentionDays.THREE_MONTHS,
            removal_policy=RemovalPolicy.DESTROY,
        )
        role = iam.Role(
            self,
            "Role",
            assumed_by=iam.ServicePrincipal("lambda.amazonaws.com"),
            description=f"Launches, watches and stops training job {job}",
        )
        log_group.grant_write(role)
        self.function: lambda_.Function = lambda_.Function(
            self,
            "Function",
            description=f"Run controller of training job {job}",
            runtime=lambda_.Runtime.PYTHON_3_13,
            architecture=lambda_.Architecture.ARM_64,
            handler=HANDLER,
            code=lambda_.Code.from_asset(str(stage_controller(staging_folder(self)))),
            timeout=Duration.seconds(FUNCTION_TIMEOUT_SECONDS),
            memory_size=FUNCTION_MEMORY_MIB,
            role=role,
            log_group=log_group,
            dead_letter_queue=self.dead_letter_queue,
            environment={
                ENV_STACK_ID: stack.stack_id,
                ENV_TABLE: self.table.table_name,
                ENV_TOPIC: monitoring.topic.topic_arn,
                "AWS_DATA_PATH": AWS_DATA_PATH,
            },
        )
        # A policy beside the role: as the role's own it would have to exist before the function,
        # whose name it holds.
        self._policy = iam.Policy(
            self,
            "Policy",
            roles=[role],
            statements=_statements(
                names={
                    "partition": Aws.PARTITION,
                    "region": stack.region,
                    "account": stack.account,
                    "job": job,
                    "job_lower_case": job.lower(),
                    "training_role_arn": training_role.role_arn,
                    "table_arn": self.table.table_arn,
                    "bundle_bucket": bundle_bucket.bucket_name,
                    "bundle_key": bundle_key,
                    "checkpoint_bucket": checkpoint_bucket.bucket_name,
                    "dataset_bucket": dataset_bucket.bucket_name,
                    "dataset_manifest_key": dataset_manifest_key,
                    "topic_arn": monitoring.topic.topic_arn,
                    "function_arn": self.function.function_arn,
                },
                lists={
                    "storage_key_arn": [key.key_arn for key in encryption_keys],
                    "topic_key_arn": [topic_key.key_arn] if topic_key else [],
                    "training_plan_arn": [training_plan_arn] if training_plan_arn else [],
                },
            ),
        )
        self.state_rule = self._state_rule("StateRule", STATUSES_WITHOUT_ALARM)
        self.failed_rule = self._state_rule("FailedRule", STATUSES_WITH_ALARM)
        self.reconcile_rule = events.Rule(
            self,
            "ReconcileRule",
            description=f"Finds what job events of {job} missed",
            schedule=events.Schedule.rate(Duration.minutes(RECONCILE_MINUTES)),
            targets=[self._target()],
        )
        monitoring.alarm_on_failed_attempts(self.failed_rule)
        monitoring.alarm(
            "UndeliveredEvent",
            metric=self.dead_letter_queue.metric_approximate_number_of_messages_visible(
                statistic="Maximum", period=Duration.minutes(5)
            ),
            description=f"The controller of {job} failed on an event; a run may be unattended",
        )
        self.monitoring = monitoring

    @property
    def cfn_function(self) -> lambda_.CfnFunction:
        """The function's own resource: it carries every tag that reaches the job."""
        resource = self.function.node.default_child
        assert isinstance(resource, lambda_.CfnFunction)
        return resource

    def add_run(
        self,
        scope: Construct,
        construct_id: str,
        *,
        definition: str,
        run_id: str | None,
        outlived_by: Sequence[IDependable],
    ) -> CustomResource:
        """Add the custom resource that hands ``definition`` to the controller.

        Its dependencies are the same in every deploy: whatever a running job and the controller
        need is created before it and, on delete, removed only after it has stopped the job.

        :param definition: ``JobDefinition`` as JSON; may hold tokens.
        :param run_id: launch this run; None only records the definition.
        :param outlived_by: what the job itself needs beside the controller.
        """
        properties: Mapping[str, str] = {
            PROPERTY_DEFINITION: definition,
            **({} if run_id is None else {PROPERTY_RUN_ID: run_id}),
        }
        run = CustomResource(
            scope,
            construct_id,
            service_token=self.function.function_arn,
            resource_type=RESOURCE_TYPE,
            service_timeout=Duration.seconds(CUSTOM_RESOURCE_TIMEOUT_SECONDS),
            properties=properties,
        )
        run.node.add_dependency(self, self.monitoring, *outlived_by)
        return run

    def on_state_change(
        self,
        scope: Construct,
        construct_id: str,
        *,
        target: events.IRuleTarget | None = None,
        statuses: Sequence[str] | None = None,
    ) -> events.Rule:
        """Rule on this job's SageMaker state changes, for other targets than the controller.

        :param target: what to call. Default: none yet; add one to the returned rule.
        :param statuses: for example ``["Failed", "Completed"]``. Default: every status.
        """
        return state_change_rule(
            scope, construct_id, job=self._job, target=target, statuses=statuses
        )

    def add_schedule(
        self, construct_id: str, *, name: str, schedule: events.Schedule, enabled: bool = True
    ) -> events.Rule:
        """Start a run of the deployed definition again and again, by the clock.

        Its id is the name with date and time, ``nightly-20270115-0200``. While another run of the
        job is wanted the new one is refused, and people are told. ``max_cost_usd`` is the ceiling
        of each run; nothing limits their sum.

        :param name: at most 10 letters, digits and single hyphens.
        :param schedule: when, in UTC.
        :param enabled: False keeps the rule without its effect.
        """
        check_name(name)
        target = targets.LambdaFunction(
            self.function,
            dead_letter_queue=self.dead_letter_queue,
            # A start that is late by more than this is no longer what was meant.
            max_event_age=Duration.hours(1),
            event=events.RuleTargetInput.from_object(
                {
                    KEY_NAME: name,
                    KEY_TIME: events.EventField.time,
                    KEY_ID: events.EventField.event_id,
                }
            ),
        )
        return events.Rule(
            self,
            construct_id,
            description=f"Starts runs {name}-<date>-<time> of training job {self._job}",
            schedule=schedule,
            enabled=enabled,
            targets=[target],
        )

    def _target(self) -> targets.LambdaFunction:
        return targets.LambdaFunction(self.function, dead_letter_queue=self.dead_letter_queue)

    def _state_rule(self, construct_id: str, statuses: Sequence[str]) -> events.Rule:
        return self.on_state_change(self, construct_id, target=self._target(), statuses=statuses)


def state_change_rule(
    scope: Construct,
    construct_id: str,
    *,
    job: str,
    target: events.IRuleTarget | None,
    statuses: Sequence[str] | None,
) -> events.Rule:
    """Rule on SageMaker state changes of every attempt of ``job``, for these or all statuses.

    ValueError for what is no status of a training job: such a rule would never fire.
    """
    unknown = [each for each in statuses or () if each not in STATUSES]
    if unknown or isinstance(statuses, str):
        raise ValueError(f"statuses is {statuses!r}: give a list of some of {', '.join(STATUSES)}")
    return events.Rule(
        scope,
        construct_id,
        description=f"Training job {job}: {', '.join(statuses or ['every status'])}",
        event_pattern=_state_pattern(Stack.of(scope).account, job, statuses),
        targets=[target] if target else None,
    )


def run_event_rule(
    scope: Construct,
    construct_id: str,
    *,
    job: str,
    target: events.IRuleTarget | None,
    happenings: Sequence[Happening] | None,
) -> events.Rule:
    """Rule on the controller's own events about ``job``; ValueError for an unknown happening."""
    wanted = list(happenings or DETAIL_TYPES)
    unknown = [each for each in wanted if each not in DETAIL_TYPES]
    if isinstance(happenings, str):
        raise ValueError(f"happenings is {happenings!r}: give a list, such as ['failed']")
    if unknown:
        raise ValueError(
            f"happening {unknown[0]!r} is not known: give some of {', '.join(DETAIL_TYPES)}"
        )
    return events.Rule(
        scope,
        construct_id,
        description=f"Runs of training job {job}: {', '.join(happenings or ['whatever happens'])}",
        event_pattern=events.EventPattern(
            source=[EVENT_SOURCE], detail={"job": [job], "what": wanted}
        ),
        targets=[target] if target else None,
    )


def _state_pattern(account: str, job: str, statuses: Sequence[str] | None) -> events.EventPattern:
    detail: dict[str, Any] = {"TrainingJobName": [{"prefix": f"{job}-"}]}
    if statuses:
        detail["TrainingJobStatus"] = list(statuses)
    return events.EventPattern(
        # A bus may also get events that other accounts forward, of jobs with the same names.
        account=[account],
        source=["aws.sagemaker"],
        detail_type=["SageMaker Training Job State Change"],
        detail=detail,
    )


def _statements(
    *, names: Mapping[str, str], lists: Mapping[str, Sequence[str]]
) -> list[iam.PolicyStatement]:
    """One IAM statement for each row of ``PERMISSIONS`` that has anything to apply to."""
    statements = []
    for permission in PERMISSIONS:
        resources = _resources(permission, names, lists)
        if resources:
            statements.append(
                iam.PolicyStatement(
                    actions=list(permission.actions),
                    resources=resources,
                    conditions=permission.conditions or None,
                )
            )
    return statements


def _resources(
    permission: Permission, names: Mapping[str, str], lists: Mapping[str, Sequence[str]]
) -> list[str]:
    resources: list[str] = []
    for template in permission.resources:
        list_name = template.strip("{}")
        found = lists[list_name] if list_name in lists else [template.format(**names)]
        resources += [arn for arn in found if arn not in resources]
    return resources

"""What other stacks may do with a training job, new or imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_events as events
from aws_cdk import aws_iam as iam
from aws_cdk import aws_lambda as lambda_
from constructs import Construct

from cdk_blackwell.infrastructure.checkpoint_store import ICheckpointStore
from cdk_blackwell.infrastructure.dashboard import run_metric
from cdk_blackwell.infrastructure.kinds import check_kinds
from cdk_blackwell.lifecycle.handler.happenings import Happening
from cdk_blackwell.lifecycle.run_controller import run_event_rule, state_change_rule
from cdk_blackwell.planning.contracts import Tier, check_job_prefix
from cdk_blackwell.planning.metrics import METRICS, RUN_METRICS

_KEYS: Final = frozenset(metric.key for metric in (*METRICS, *RUN_METRICS))


class ITrainingJob(Protocol):
    """A training job, however it came to be."""

    @property
    def job_name(self) -> str:
        """Prefix of training job names and of keys in the checkpoint bucket."""
        ...

    @property
    def tier(self) -> Tier:
        """Size tier."""
        ...

    @property
    def controller_function(self) -> lambda_.IFunction:
        """Starts, watches and stops runs."""
        ...

    @property
    def checkpoint_store(self) -> ICheckpointStore:
        """Holds the runs."""
        ...

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` start, stop and ask for runs."""
        ...

    def grant_read_checkpoints(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` read this job's runs."""
        ...

    def metric(self, key: str, *, period: Duration | None = None) -> cloudwatch.Metric:
        """A number that the controller publishes of this job's runs, by its key.

        :param period: Default: 5 minutes, in which one value is published.
        """
        ...

    def on_state_change(
        self,
        construct_id: str,
        *,
        target: events.IRuleTarget | None = None,
        statuses: Sequence[str] | None = None,
    ) -> events.Rule:
        """Rule on this job's SageMaker state changes.

        :param target: what to call. Default: none yet; add one to the returned rule.
        :param statuses: for example ``["Failed", "Completed"]``. Default: every status.
        """
        ...


class JobUse(Construct):
    """What new and imported jobs share."""

    job_name: str
    tier: Tier
    controller_function: lambda_.IFunction
    checkpoint_store: ICheckpointStore

    def grant_start(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` start, stop and ask for runs, by invoking the controller."""
        return self.controller_function.grant_invoke(grantee)

    def grant_read_checkpoints(self, grantee: iam.IGrantable) -> iam.Grant:
        """Let ``grantee`` read this job's runs: checkpoints, progress and exports."""
        return self.checkpoint_store.grant_read(grantee, self.job_name)

    def metric(self, key: str, *, period: Duration | None = None) -> cloudwatch.Metric:
        """A number that the controller publishes of this job's runs, for graphs and alarms.

        Its dimensions, job and tier, outlive a run's name.

        :param key: of a metrics line or of the controller's own, for example ``loss`` or ``mfu``.
        :param period: Default: 5 minutes, in which one value is published.

        ValueError lists the keys there are where this is none.
        """
        if key not in _KEYS:
            raise ValueError(
                f"metric {key!r} is not published: give one of {', '.join(sorted(_KEYS))}"
            )
        return run_metric(key, job=self.job_name, tier=self.tier, period=period)

    def metric_tokens_per_second(self, *, period: Duration | None = None) -> cloudwatch.Metric:
        """Training throughput over all GPUs, tokens per second."""
        return self.metric("tokens_per_second", period=period)

    def metric_mfu(self, *, period: Duration | None = None) -> cloudwatch.Metric:
        """Model FLOPs (causal convention) over dense peak, percent."""
        return self.metric("mfu", period=period)

    def metric_loss(self, *, period: Duration | None = None) -> cloudwatch.Metric:
        """Training loss, nats per token."""
        return self.metric("loss", period=period)

    def on_state_change(
        self,
        construct_id: str,
        *,
        target: events.IRuleTarget | None = None,
        statuses: Sequence[str] | None = None,
    ) -> events.Rule:
        """Rule on this job's SageMaker state changes.

        :param target: what to call. Default: none yet; add one to the returned rule.
        :param statuses: for example ``["Failed", "Completed"]``. Default: every status.
        """
        return state_change_rule(
            self, construct_id, job=self.job_name, target=target, statuses=statuses
        )

    def on_run_event(
        self,
        construct_id: str,
        *,
        target: events.IRuleTarget | None = None,
        happenings: Sequence[Happening] | None = None,
    ) -> events.Rule:
        """Rule on what the controller tells of this job's runs: why, spent, where to look.

        :param target: what to call. Default: none yet; add one to the returned rule.
        :param happenings: for example ``["failed", "resubmitted"]``. Default: all.
        """
        return run_event_rule(
            self, construct_id, job=self.job_name, target=target, happenings=happenings
        )


class ImportedTrainingJob(JobUse):
    """A job of another stack, by what its output tells."""

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        job_name: str,
        tier: Tier,
        controller_function: lambda_.IFunction,
        checkpoint_store: ICheckpointStore,
    ) -> None:
        super().__init__(scope, construct_id)
        check_kinds(ImportedTrainingJob.__init__, locals())
        self.job_name = check_job_prefix(job_name)
        self.tier = tier
        self.controller_function = controller_function
        self.checkpoint_store = checkpoint_store

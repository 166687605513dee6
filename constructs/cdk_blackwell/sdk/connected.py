"""A deployed job as a notebook uses it: runs through its controller, handles of the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from cdk_blackwell.deployed.controller import ask, require
from cdk_blackwell.deployed.definition import read_definition
from cdk_blackwell.deployed.errors import CommandError
from cdk_blackwell.deployed.jobs import DeployedJob, find_job
from cdk_blackwell.deployed.session import Aws, open_aws
from cdk_blackwell.lifecycle.handler.definition import ControllerAnswer
from cdk_blackwell.sdk.own_code import OwnCode
from cdk_blackwell.sdk.sessions import read_logs_with

if TYPE_CHECKING:
    from sagemaker.core.resources import TrainingJob
    from sagemaker.train import ModelTrainer


def connect(
    stack: str | None = None,
    job: str | None = None,
    *,
    profile: str | None = None,
    region: str | None = None,
) -> ConnectedJob:
    """Find a deployed job.

    :param stack: name or ARN of its stack. Default: the only one of the region.
    :param job: name of the job. Default: the stack's only one.
    :param profile: of the AWS configuration files. Default: ``AWS_PROFILE``, else the default one.
    :param region: Default: ``AWS_DEFAULT_REGION`` or ``AWS_REGION``, else the profile's.

    CommandError says what there is where no job fits, or several.
    """
    aws = open_aws(profile, region)
    return ConnectedJob(aws=aws, deployed=find_job(aws, stack, job))


@dataclass(frozen=True, kw_only=True)
class ConnectedJob:
    """One deployed job; made by ``connect``."""

    aws: Aws
    deployed: DeployedJob

    def preview(
        self, run_id: str, *, overrides: Mapping[str, Any] | None = None
    ) -> ControllerAnswer:
        """What ``start`` would launch: exact ``request`` and worst-case ``cost``; launches nothing.

        :param run_id: a new id.
        :param overrides: values of ``run.json`` by their path, for example ``{"recipe.seed": 7}``.

        RefusedError says why the controller would refuse.
        """
        return self._ask("start", run_id=run_id, overrides=overrides, dry_run=True)

    def start(self, run_id: str, *, overrides: Mapping[str, Any] | None = None) -> TrainingJob:
        """Launch a run, or a variation of it, through the controller.

        What the stack says holds as for every other launch: cost ceiling, attempts, resume.

        :param run_id: a new id.
        :param overrides: values of ``run.json`` by their path, for example ``{"recipe.seed": 7}``.

        RefusedError says why the controller refused; then nothing was launched.
        """
        return self._handle(self._ask("start", run_id=run_id, overrides=overrides))

    def trial(self, run_id: str, *, overrides: Mapping[str, Any] | None = None) -> TrainingJob:
        """Launch a trial of a few steps; as ``start`` otherwise."""
        return self._handle(self._ask("trial", run_id=run_id, overrides=overrides))

    def stop(self, run_id: str | None = None) -> ControllerAnswer:
        """Stop a run for good: it saves, uploads, and is not resumed.

        :param run_id: Default: the run that was launched last.
        """
        return self._ask("stop", run_id=run_id)

    def status(self, run_id: str | None = None) -> ControllerAnswer:
        """How a run stands: state, attempts, newest complete checkpoint, worst-case cost.

        :param run_id: Default: the run that was launched last.
        """
        return self._ask("status", run_id=run_id)

    def training_job(self, run_id: str | None = None) -> TrainingJob:
        """The SDK's handle of a run's newest attempt, which the controller may have resubmitted.

        :param run_id: Default: the run that was launched last.

        CommandError where no such run was launched.
        """
        answer = self.status(run_id)
        if answer.job_name is None:
            raise CommandError(f"job {self.deployed.output.job!r}: {answer.message}")
        return self._handle(answer)

    @cached_property
    def own_code(self) -> OwnCode:
        """What code of one's own needs to run where this job runs."""
        return OwnCode(
            definition=read_definition(self.aws, self.deployed), boto_session=self.aws.session
        )

    def model_trainer(self, **more: Any) -> ModelTrainer:
        """The SDK's ``ModelTrainer`` with everything of this job filled in.

        :param more: arguments of ``ModelTrainer``, ``source_code`` for one; they win.
        """
        return self.own_code.model_trainer(**more)

    def _ask(self, action: str, **more: Any) -> ControllerAnswer:
        return require(ask(self.aws, self.deployed, action, **more))

    def _handle(self, answer: ControllerAnswer) -> TrainingJob:
        from sagemaker.core.resources import TrainingJob

        read_logs_with(self.aws.session)
        return TrainingJob.get(
            training_job_name=answer.job_name, session=self.aws.session, region=self.aws.region
        )

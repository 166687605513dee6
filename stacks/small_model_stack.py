"""SmallModelStack: one SmallModelJob on a foundation."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from cdk_blackwell.infrastructure.foundation import IFoundation
from cdk_blackwell.jobs.small_model_job import SmallModelJob
from stacks.job_props import job_props
from stacks.settings import JobSettings


class SmallModelStack(Stack):
    """A job for a model of up to 7B parameters, from the application's settings.

    :param foundation: what the job stands on.
    :param settings: the tier's context values.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        foundation: IFoundation,
        settings: JobSettings,
        **stack_props: Any,
    ) -> None:
        super().__init__(scope, construct_id, **stack_props)
        self.job: SmallModelJob = SmallModelJob(
            self, "Train", foundation=foundation, **job_props(settings)
        )

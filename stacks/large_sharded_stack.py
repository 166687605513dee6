"""LargeShardedStack: one LargeShardedJob on a foundation."""

from __future__ import annotations

from typing import Any

from aws_cdk import Stack
from constructs import Construct

from cdk_blackwell.infrastructure.foundation import IFoundation
from cdk_blackwell.jobs.large_sharded_job import LargeShardedJob
from stacks.job_props import job_props
from stacks.settings import JobSettings


class LargeShardedStack(Stack):
    """A job for a model of 30B to 64B parameters, from the application's settings.

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
        self.job: LargeShardedJob = LargeShardedJob(
            self, "Train", foundation=foundation, **job_props(settings)
        )

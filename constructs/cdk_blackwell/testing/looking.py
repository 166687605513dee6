"""Find the jobs of an app, their plans, and the requests their controllers will send."""

from __future__ import annotations

from typing import Any, Final, cast

from aws_cdk import Stack
from constructs import IConstruct

from cdk_blackwell.jobs.training_job import TrainingJob
from cdk_blackwell.lifecycle.handler.request import render_request
from cdk_blackwell.planning.plan import Plan

SAMPLE_RUN: Final = "sample"
SAMPLE_STACK_ID: Final = (
    "arn:aws:cloudformation:us-west-2:123456789012:stack/sample/"
    "00000000-0000-0000-0000-000000000000"
)
"""A stack's id is known only once it is deployed; eight digits of its hash go into job names."""


def jobs(scope: IConstruct) -> dict[str, TrainingJob]:
    """Every training job made in ``scope`` (an app, stage or stack), by its construct path."""
    return {
        construct.node.path: construct
        for construct in scope.node.find_all()
        if isinstance(construct, TrainingJob)
    }


def plans(scope: IConstruct) -> dict[str, Plan]:
    """The plan of every training job in ``scope``, by its construct path."""
    return {path: job.plan for path, job in jobs(scope).items()}


def rendered_request(
    stack: Stack, job: TrainingJob | str, *, run_id: str | None = None, attempt: int = 1
) -> dict[str, Any]:
    """The CreateTrainingJob request of an attempt, as the controller completes it.

    What only CloudFormation knows stands there as in the template (``{"Ref": ...}``).

    :param stack: the stack of the job.
    :param job: the job, or its construct path below the stack.
    :param run_id: Default: the job's own, else ``sample``.
    :param attempt: counts from 1. Default: 1.
    """
    found = _job(stack, job)
    request = render_request(
        found.definition,
        stack_id=SAMPLE_STACK_ID,
        run_id=run_id or found.run_id or SAMPLE_RUN,
        attempt=attempt,
    )
    return cast("dict[str, Any]", stack.resolve(request))


def _job(stack: Stack, job: TrainingJob | str) -> TrainingJob:
    here = jobs(stack)
    path = f"{stack.node.path}/{job}" if isinstance(job, str) else job.node.path
    if path not in here:
        names = ", ".join(here) or "none"
        raise ValueError(
            f"there is no training job {path} in stack {stack.node.path}; it has: {names}"
        )
    return here[path]

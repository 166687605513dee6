"""What is looked at before money is spent: a passing trial, and the price."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import typer

from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.cli.trial.reports import passing_trial
from cdk_blackwell.deployed.definition import read_definition
from cdk_blackwell.deployed.jobs import DeployedJob
from cdk_blackwell.deployed.session import Aws
from cdk_blackwell.lifecycle.handler.definition import ControllerAnswer


def find_trial(aws: Aws, job: DeployedJob, answer: ControllerAnswer) -> str | None:
    """Id of the trial run that passed what this request would train; None without one."""
    request = answer.request or {}
    run = read_definition(aws, job).run
    return passing_trial(aws, job, run, request.get("HyperParameters", {}))


def no_trial(run_id: str, job: DeployedJob) -> str:
    """What to say, and do, without a passing trial."""
    return (
        "no trial has passed with this recipe, layout and model: run "
        f"'cdk-blackwell trial {run_id}-trial {job.words}' first"
    )


def confirm(cost: Mapping[str, Any], *, above_usd: float, yes: bool) -> None:
    """Ask a person where the worst case is above the limit or not known.

    CommandError where there is nobody to ask; ``typer.Abort`` when the answer is no.
    """
    worst = cost.get("worst_case_usd")
    if yes or (worst is not None and worst <= above_usd):
        return
    price = "an unknown amount (the stack has no price)" if worst is None else f"{worst:,.2f} USD"
    question = f"This can cost up to {price}. Launch it?"
    if not sys.stdin.isatty():
        raise CommandError(
            f"this can cost up to {price}, above the {above_usd:,.2f} USD that need no question: "
            "give --yes to launch it"
        )
    typer.confirm(question, abort=True, err=True)

"""``cdk-blackwell start``: options in, one launch out."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cdk_blackwell.cli.aws.options import AsJson, Job, Profile, Region, Stack, usable_run_id
from cdk_blackwell.cli.quantities import money

NO_QUESTION_BELOW_USD = 100.0
"""About an hour of one instance: a slip of that size needs no question. This project's choice."""


def start(
    run_id: Annotated[
        str,
        typer.Argument(
            metavar="RUN_ID", parser=usable_run_id, help="A new id, for example 2027-01-15-a."
        ),
    ],
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change one value of run.json, as recipe.seed=7."
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Show the exact CreateTrainingJob request and its cost."),
    ] = False,
    require_trial: Annotated[
        bool,
        typer.Option("--require-trial", help="Refuse unless a trial passed with this recipe."),
    ] = False,
    confirm_above: Annotated[
        float | None,
        typer.Option(
            parser=money, metavar="USD", help="Ask where the worst case costs more. Left out: 100."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Launch a run of a deployed job through its controller.

    Exit codes: 0 launched, 2 bad input or no answer to the question, 3 refused by the controller
    or for want of a trial, 4 AWS said no, 130 answered with no.
    """
    from cdk_blackwell.cli.errors import RefusedError
    from cdk_blackwell.cli.start.checks import confirm, find_trial, no_trial
    from cdk_blackwell.cli.start.overrides import read_overrides
    from cdk_blackwell.cli.start.screen import cost_lines
    from cdk_blackwell.deployed.controller import ask, require
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws

    overrides = read_overrides(settings or []) or None
    aws = open_aws(profile, region)
    deployed = find_job(aws, stack, job)
    answer = ask(aws, deployed, "start", run_id=run_id, overrides=overrides, dry_run=True)
    if answer.state == "refused":
        if as_json:
            typer.echo(json.dumps(answer.to_dict(), indent=2))
        require(answer)
    trial = find_trial(aws, deployed, answer)
    if trial is None and require_trial:
        raise RefusedError(no_trial(run_id, deployed))
    if trial is None:
        typer.echo(f"warning: {no_trial(run_id, deployed)}", err=True)
    if not dry_run:
        limit = NO_QUESTION_BELOW_USD if confirm_above is None else confirm_above
        confirm(answer.cost or {}, above_usd=limit, yes=yes)
        answer = ask(aws, deployed, "start", run_id=run_id, overrides=overrides)
    if as_json:
        typer.echo(json.dumps({**answer.to_dict(), "trial": trial}, indent=2))
        require(answer)
        return
    require(answer)
    if dry_run:
        typer.echo(json.dumps(answer.request, indent=2))
    typer.echo(f"{answer.state}: {answer.message}")
    for line in cost_lines(answer.cost or {}):
        typer.echo(line)
    if not dry_run:
        typer.echo(f"Follow it with: cdk-blackwell watch {run_id} {deployed.words}")

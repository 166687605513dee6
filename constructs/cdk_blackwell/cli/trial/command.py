"""``cdk-blackwell trial``: start a trial, wait for its report, show who won."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from cdk_blackwell.cli.aws.options import AsJson, Job, Profile, Region, Stack, usable_run_id
from cdk_blackwell.cli.quantities import money
from cdk_blackwell.cli.start.command import NO_QUESTION_BELOW_USD


def trial(
    run_id: Annotated[
        str,
        typer.Argument(
            metavar="RUN_ID", parser=usable_run_id, help="A new id, or that of a trial to look at."
        ),
    ],
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="Change one value for this trial."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the exact request and its cost.")
    ] = False,
    report_only: Annotated[
        bool, typer.Option("--report", help="Start nothing; show the report of a trial.")
    ] = False,
    wait: Annotated[bool, typer.Option(help="Wait for the report.")] = True,
    interval: Annotated[float, typer.Option(min=1.0, help="Seconds between looks.")] = 15.0,
    confirm_above: Annotated[
        float | None,
        typer.Option(
            parser=money, metavar="USD", help="Ask where the worst case costs more. Left out: 100."
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the plan's best candidates for a few steps each and show the measured winner.

    Exit codes: 0 done, 1 no candidate succeeded, 2 bad input or no answer to the question,
    3 refused by the controller, 4 AWS said no, 130 answered with no.
    """
    from rich.console import Console

    from cdk_blackwell.cli.errors import CheckFailedError
    from cdk_blackwell.cli.start.checks import confirm
    from cdk_blackwell.cli.start.overrides import read_overrides
    from cdk_blackwell.cli.trial.screen import report_table
    from cdk_blackwell.cli.trial.waiting import wait_for_report
    from cdk_blackwell.deployed.controller import ask, require
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws

    aws = open_aws(profile, region)
    deployed = find_job(aws, stack, job)
    if not report_only:
        overrides = read_overrides(settings or []) or None
        answer = require(
            ask(aws, deployed, "trial", run_id=run_id, overrides=overrides, dry_run=True)
        )
        if not dry_run:
            limit = NO_QUESTION_BELOW_USD if confirm_above is None else confirm_above
            confirm(answer.cost or {}, above_usd=limit, yes=yes)
            answer = require(ask(aws, deployed, "trial", run_id=run_id, overrides=overrides))
        if dry_run or not wait:
            typer.echo(json.dumps(answer.to_dict(), indent=2) if as_json else answer.message)
            return
    report = wait_for_report(
        aws,
        deployed,
        run_id,
        looks=None if wait else 1,
        sleep=lambda: time.sleep(interval),
        say=lambda text: typer.echo(text, err=True),
    )
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2))
    else:
        Console().print(report_table(report))
        typer.echo(report.reason)
    if report.winner is None:
        raise CheckFailedError(f"no candidate of trial {run_id!r} succeeded: {report.reason}")

"""``cdk-blackwell runs``: every run with its attempts, reasons and cost."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from cdk_blackwell.cli.aws.options import AsJson, Job, Profile, Region, RunId, Stack


def runs(
    run_id: RunId = None,
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    limit: Annotated[int, typer.Option(min=1, help="Newest runs to show.")] = 20,
    as_json: AsJson = False,
) -> None:
    """Show the runs of a deployed job: attempts, reasons and cost.

    With RUN_ID, all attempts of that run. Exit codes: 0 done, 2 bad input, 4 AWS said no.
    """
    from rich.console import Console

    from cdk_blackwell.cli.aws.history import find_run, read_runs
    from cdk_blackwell.cli.runs.screen import attempts_table, run_dict, runs_table
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws

    aws = open_aws(profile, region)
    deployed = find_job(aws, stack, job)
    found = (
        read_runs(aws, deployed, limit=limit)
        if run_id is None
        else [find_run(aws, deployed, run_id)]
    )
    if as_json:
        value = {"stack": deployed.stack, "job": asdict(deployed.output)}
        typer.echo(json.dumps({**value, "runs": [run_dict(run) for run in found]}, indent=2))
        return
    console = Console()
    if not found:
        console.print(
            f"Job {deployed.output.job} has no run yet: "
            f"cdk-blackwell start RUN_ID {deployed.words}",
            soft_wrap=True,
            highlight=False,
        )
        return
    console.print(runs_table(found) if run_id is None else attempts_table(found[0]))

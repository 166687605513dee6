"""``cdk-blackwell stop``: end a run; it saves and uploads first."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from cdk_blackwell.cli.aws.options import AsJson, Job, Profile, Region, RunId, Stack


def stop(
    run_id: RunId = None,
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which job would be stopped.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Stop a run for good: the controller does not resume it.

    SageMaker gives it 120 seconds to save, and uploads what it saved. Exit codes: 0 done,
    2 bad input, 3 refused by the controller, 4 AWS said no.
    """
    from cdk_blackwell.deployed.controller import ask, require
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws

    aws = open_aws(profile, region)
    answer = ask(aws, find_job(aws, stack, job), "stop", run_id=run_id, dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps(answer.to_dict(), indent=2))
    require(answer)
    if not as_json:
        typer.echo(f"{answer.state}: {answer.message}")

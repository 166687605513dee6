"""``cdk-blackwell doctor``: options in, findings out."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from cdk_blackwell.cli.aws.options import AsJson, Job, Profile, Region, Stack


def doctor(
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    as_json: AsJson = False,
) -> None:
    """Look at everything a launch of a deployed job depends on; nothing is started or changed.

    Exit codes: 0 no check failed, 1 at least one did, 2 bad input, 4 AWS said no.
    """
    from rich.console import Console

    from cdk_blackwell.cli.doctor.checks import examine
    from cdk_blackwell.cli.doctor.finding import Subject
    from cdk_blackwell.cli.doctor.screen import results_table
    from cdk_blackwell.cli.errors import CheckFailedError
    from cdk_blackwell.deployed.definition import read_definition
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws

    aws = open_aws(profile, region)
    deployed = find_job(aws, stack, job)
    definition = read_definition(aws, deployed)
    results = list(examine(Subject(aws=aws, job=deployed, definition=definition)))
    if as_json:
        rows = [{"check": each.check, **asdict(each.finding)} for each in results]
        typer.echo(json.dumps({"stack": deployed.stack, "checks": rows}, indent=2))
    else:
        Console().print(results_table(results))
    bad = [each.check for each in results if each.finding.verdict == "fail"]
    if bad:
        raise CheckFailedError(f"{len(bad)} of {len(results)} checks failed: {', '.join(bad)}")

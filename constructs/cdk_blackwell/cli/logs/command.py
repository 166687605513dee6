"""``cdk-blackwell logs``: options in, lines out."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cdk_blackwell.cli.aws.options import AsJson, Job, Profile, Region, RunId, Stack

if TYPE_CHECKING:
    from cdk_blackwell.cli.logs.lines import Line


def logs(
    run_id: RunId = None,
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    attempt: Annotated[
        int | None, typer.Option(min=1, help="Left out: the newest attempt.")
    ] = None,
    filter_pattern: Annotated[
        str | None,
        typer.Option(
            "--filter", metavar="PATTERN", help="CloudWatch Logs filter pattern, for example ERROR."
        ),
    ] = None,
    host: Annotated[
        str | None, typer.Option(metavar="NAME", help="One host only, for example algo-2.")
    ] = None,
    rank: Annotated[int | None, typer.Option(min=0, help="Lines that name this rank only.")] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until the attempt ends.")
    ] = False,
    interval: Annotated[
        float, typer.Option(min=0.2, help="Seconds between looks with --follow.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Show the log of a run: all hosts, merged in the order of time.

    With --json, one object a line. Exit codes: 0 done, 2 bad input, 4 AWS said no.
    """
    from cdk_blackwell.cli.aws.history import describe, find_run
    from cdk_blackwell.cli.aws.reconnect import patient
    from cdk_blackwell.cli.errors import CommandError
    from cdk_blackwell.cli.logs.lines import Follower
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws
    from cdk_blackwell.lifecycle.handler.jobs import TERMINAL

    aws = open_aws(profile, region)
    run = find_run(aws, find_job(aws, stack, job), run_id)
    names = {each.record.attempt: each.record.job_name for each in run.attempts}
    number = max(names) if attempt is None else attempt
    if number not in names:
        raise CommandError(f"run {run.run_id!r} has no attempt {number}; it has {max(names)}")
    follower = Follower(aws, names[number], pattern=filter_pattern)
    while True:
        # Looked at before the lines: what an ended job said last is then among them.
        seen = patient(lambda: describe(aws, names[number]) or {}) if follow else {}
        for line in patient(lambda: list(follower.new_lines())):
            if host in (None, line.host) and rank in (None, line.rank):
                typer.echo(json.dumps(_json(line)) if as_json else _text(line))
        if not follow or seen.get("TrainingJobStatus") in TERMINAL:
            return
        time.sleep(interval)


def _when(line: Line) -> str:
    return datetime.fromtimestamp(line.milliseconds / 1000, UTC).isoformat(timespec="milliseconds")


def _text(line: Line) -> str:
    return f"{_when(line)[11:19]} {line.host:<7} {line.text}"


def _json(line: Line) -> dict[str, object]:
    return {"time": _when(line), "host": line.host, "rank": line.rank, "message": line.text}

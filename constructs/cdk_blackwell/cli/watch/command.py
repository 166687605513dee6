"""``cdk-blackwell watch``: options in, frames out."""

from __future__ import annotations

import json
import math
import time
from dataclasses import asdict
from typing import Annotated, Any

import typer

from cdk_blackwell.cli.aws.options import AsJson, Job, Profile, Region, RunId, Stack


def watch(
    run_id: RunId = None,
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    once: Annotated[bool, typer.Option("--once", help="One frame, then end.")] = False,
    interval: Annotated[float, typer.Option(min=1.0, help="Seconds between looks.")] = 15.0,
    as_json: AsJson = False,
) -> None:
    """Watch a run until it ends: phase, step, loss, speed, memory, checkpoint, time and money.

    Goes on over lost connections and from attempt to attempt; Ctrl-C ends the watching, not the
    run. With --json, one object a line. Exit codes: 0 done, 2 bad input, 4 AWS said no,
    130 interrupted.
    """
    from rich.console import Console

    from cdk_blackwell.cli.aws.history import find_run
    from cdk_blackwell.cli.aws.reconnect import patient
    from cdk_blackwell.cli.watch.frame import Watcher
    from cdk_blackwell.cli.watch.live import show
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws

    aws = open_aws(profile, region)
    deployed = find_job(aws, stack, job)
    watcher = Watcher(aws, deployed, find_run(aws, deployed, run_id).run_id)
    with show(Console(), live=not (once or as_json)) as put:
        while True:
            frame = watcher.look() if once else patient(watcher.look)
            if as_json:
                typer.echo(json.dumps(_finite(asdict(frame)), allow_nan=False))
            else:
                put(frame)
            if once or frame.ended:
                return
            time.sleep(interval)


def _finite(value: Any) -> Any:
    """JSON has no word for a loss that is no number: null."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value

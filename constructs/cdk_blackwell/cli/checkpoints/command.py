"""``cdk-blackwell checkpoints list | fetch | export``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from cdk_blackwell.cli.aws.options import AsJson, Job, Profile, Region, RunId, Stack

if TYPE_CHECKING:
    from cdk_blackwell.cli.checkpoints.found import Checkpoint

checkpoints = typer.Typer(help="List, fetch and export a run's checkpoints.", no_args_is_help=True)

Step = Annotated[int | None, typer.Option(min=0, help="Left out: the newest complete one.")]


@checkpoints.command("list")
def list_(
    run_id: RunId = None,
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    as_json: AsJson = False,
) -> None:
    """Show which checkpoints of a run are complete, with step, size and age.

    Checkpoints on FSx appear once they are exported to S3. Exit codes: 0 done, 2 bad input,
    4 AWS said no.
    """
    from rich.console import Console

    from cdk_blackwell.cli.aws.history import find_run
    from cdk_blackwell.cli.checkpoints.found import list_checkpoints
    from cdk_blackwell.cli.checkpoints.screen import checkpoints_table
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws

    aws = open_aws(profile, region)
    deployed = find_job(aws, stack, job)
    run = find_run(aws, deployed, run_id)
    found = list_checkpoints(aws, deployed, run.run_id)
    if as_json:
        rows = [_row(each) for each in found]
        typer.echo(json.dumps({"run_id": run.run_id, "checkpoints": rows}, indent=2))
    elif found:
        Console().print(checkpoints_table(run.run_id, found))
    else:
        typer.echo(f"Run {run.run_id} has no checkpoint in S3 yet.")


@checkpoints.command()
def fetch(
    run_id: RunId = None,
    output: Annotated[Path, typer.Option(help="Folder to fill with step-... .")] = Path(
        "checkpoints"
    ),
    step: Step = None,
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    as_json: AsJson = False,
) -> None:
    """Download a complete checkpoint and compare every file's checksum.

    Exit codes: 0 done, 1 a file is damaged, 2 bad input, 4 AWS said no.
    """
    from cdk_blackwell.cli.aws.history import find_run
    from cdk_blackwell.cli.checkpoints.found import choose, list_checkpoints
    from cdk_blackwell.cli.checkpoints.transfer import fetch_checkpoint
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws

    aws = open_aws(profile, region)
    deployed = find_job(aws, stack, job)
    run = find_run(aws, deployed, run_id)
    chosen = choose(list_checkpoints(aws, deployed, run.run_id), step, run.run_id)
    bucket = deployed.output.checkpoint_bucket
    folder = fetch_checkpoint(aws, bucket, chosen, output, _say)
    _done({"run_id": run.run_id, "step": chosen.step, "folder": str(folder)}, as_json)


@checkpoints.command()
def export(
    output: Annotated[Path, typer.Option(help="Folder to create.")],
    run_id: RunId = None,
    step: Step = None,
    dtype: Annotated[
        Literal["bf16", "fp32"] | None,
        typer.Option(help="Left out: fp32 for a run in fp32, else bf16."),
    ] = None,
    stack: Stack = None,
    job: Job = None,
    profile: Profile = None,
    region: Region = None,
    as_json: AsJson = False,
) -> None:
    """Turn a complete checkpoint into Hugging Face safetensors, on this machine's CPU.

    Exit codes: 0 done, 1 the export failed, 2 bad input, 4 AWS said no.
    """
    from cdk_blackwell.cli.aws.history import find_run
    from cdk_blackwell.cli.checkpoints.export import export_checkpoint
    from cdk_blackwell.cli.checkpoints.found import choose, list_checkpoints
    from cdk_blackwell.cli.errors import CommandError
    from cdk_blackwell.deployed.jobs import find_job
    from cdk_blackwell.deployed.session import open_aws

    aws = open_aws(profile, region)
    deployed = find_job(aws, stack, job)
    run = find_run(aws, deployed, run_id)
    if run.definition is None:
        raise CommandError(
            f"run {run.run_id!r} was launched by another version of cdk-blackwell; export it with "
            "that version"
        )
    chosen = choose(list_checkpoints(aws, deployed, run.run_id), step, run.run_id)
    export_checkpoint(
        aws, deployed, run.run_id, run.definition, chosen, output, dtype=dtype, say=_say
    )
    _done({"run_id": run.run_id, "step": chosen.step, "folder": str(output)}, as_json)


def _row(found: Checkpoint) -> dict[str, object]:
    return {
        "step": found.step,
        "complete": not found.problem,
        "problem": found.problem,
        "bytes": found.bytes,
        "files": len(found.sizes),
        "age_seconds": found.age_seconds,
        "tokens": found.marker.tokens if found.marker else None,
    }


def _done(result: dict[str, object], as_json: bool) -> None:
    typer.echo(
        json.dumps(result, indent=2)
        if as_json
        else f"Step {result['step']} of run {result['run_id']} is in {result['folder']}"
    )


def _say(text: str) -> None:
    typer.echo(text, err=True)

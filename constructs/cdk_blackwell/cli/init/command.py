"""``cdk-blackwell init``: options in, a folder out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from cdk_blackwell.cli.aws.options import AsJson
from cdk_blackwell.cli.init.templates import Name


def init(
    template: Annotated[
        Name,
        typer.Option(help="small: up to 7B; mid: 7B to 30B; large: 30B to 64B parameters."),
    ],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Empty or new.")] = Path(),
    as_json: AsJson = False,
) -> None:
    """Write a CDK application of your own that deploys one training job.

    Exit codes: 0 done, 2 bad input or a folder that is not empty.
    """
    from cdk_blackwell.cli.init.templates import write_application

    written = write_application(template, folder)
    if as_json:
        files = [str(path) for path in written]
        typer.echo(json.dumps({"folder": str(folder), "files": files}, indent=2))
        return
    typer.echo(f"{len(written)} files in {folder}; README.md says how to go on")

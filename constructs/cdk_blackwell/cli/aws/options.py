"""Options that every command on a deployed job takes."""

from __future__ import annotations

from typing import Annotated

import typer

from cdk_blackwell.planning.contracts import check_run_id

_WHERE = "Where"

Stack = Annotated[
    str | None,
    typer.Option(
        "--stack",
        rich_help_panel=_WHERE,
        help="CloudFormation stack of the job. Left out: the only one in the region.",
    ),
]
Job = Annotated[
    str | None,
    typer.Option("--job", rich_help_panel=_WHERE, help="Name of the job, if a stack has several."),
]
Profile = Annotated[
    str | None, typer.Option("--profile", rich_help_panel=_WHERE, help="AWS profile.")
]
Region = Annotated[str | None, typer.Option("--region", rich_help_panel=_WHERE, help="AWS region.")]
AsJson = Annotated[bool, typer.Option("--json", help="JSON and nothing else.")]
RunId = Annotated[
    str | None,
    typer.Argument(metavar="RUN_ID", help="Left out: the run that was launched last."),
]


def usable_run_id(text: str) -> str:
    """An id that a training job's name can hold."""
    try:
        return check_run_id(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error

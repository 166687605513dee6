"""Entry point: commands and the mapping of their ends to exit codes."""

from __future__ import annotations

import signal
import sys
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console

from cdk_blackwell._version import __version__
from cdk_blackwell.cli.demo.command import demo
from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.cli.vendor import vendor
from cdk_blackwell.planning.contracts import EXIT_INTERRUPTED

app = typer.Typer(
    name="cdk-blackwell",
    help="Train models of up to 64B parameters on SageMaker ml.p6-b200.48xlarge.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.command()(demo)
app.command()(vendor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options that come before the command."""


def _raise_interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line and exit with a documented code (planning.contracts.EXIT_*)."""
    # A supervisor's SIGTERM must clean up exactly as Ctrl-C does.
    signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        app(standalone_mode=True)
    except CommandError as error:
        Console(stderr=True).print(
            f"cdk-blackwell: {error}", style="red", markup=False, highlight=False
        )
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)

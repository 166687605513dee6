"""Entry point: commands and the mapping of their ends to exit codes."""

from __future__ import annotations

import errno
import io
import json
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console

from cdk_blackwell._version import __version__
from cdk_blackwell.cli.checkpoints.command import checkpoints
from cdk_blackwell.cli.demo.command import demo
from cdk_blackwell.cli.doctor.command import doctor
from cdk_blackwell.cli.errors import CommandError
from cdk_blackwell.cli.help import polish
from cdk_blackwell.cli.init.command import init
from cdk_blackwell.cli.logs.command import logs
from cdk_blackwell.cli.plan.command import plan
from cdk_blackwell.cli.runs.command import runs
from cdk_blackwell.cli.runs.stop import stop
from cdk_blackwell.cli.start.command import start
from cdk_blackwell.cli.trial.command import trial
from cdk_blackwell.cli.vendor import vendor
from cdk_blackwell.cli.watch.command import watch
from cdk_blackwell.planning.contracts import EXIT_BAD_INPUT, EXIT_DONE, EXIT_INTERRUPTED

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""Errors of a full disk; they often name no file."""

app = typer.Typer(
    name="cdk-blackwell",
    help="Train models of up to 64B parameters on SageMaker ml.p6-b200.48xlarge.",
    pretty_exceptions_enable=False,
)
app.command()(plan)
app.command()(init)
app.command()(doctor)
app.command()(trial)
app.command()(start)
app.command()(watch)
app.command()(runs)
app.command()(stop)
app.command()(logs)
app.add_typer(checkpoints, name="checkpoints")
app.command()(demo)
app.command()(vendor)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback(invoke_without_command=True)
def _options(
    context: typer.Context,
    version: bool = typer.Option(
        False, "--version", callback=_print_version, is_eager=True, help="Print the version."
    ),
) -> None:
    """Options that come before the command."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())
        raise typer.Exit(EXIT_BAD_INPUT)


def _raise_interrupt(_signal: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def main() -> None:
    """Run the command line and exit with a documented code (planning.contracts.EXIT_*)."""
    for stream in (sys.stdout, sys.stderr):
        # An ASCII terminal gets question marks for bars and ticks, not an error.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    # A supervisor's SIGTERM must clean up exactly as Ctrl-C does.
    signal.signal(signal.SIGTERM, _raise_interrupt)
    try:
        command = typer.main.get_command(app)
        polish(command)
        sys.exit(command(standalone_mode=False))
    except CommandError as error:
        _fail(str(error), error.exit_code)
    except typer.TyperException as error:
        _fail(_usage(error), EXIT_BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(EXIT_INTERRUPTED)
    except SystemExit as end:
        # typer and rich end with 1, a failed check, when a reader (head, less) has enough.
        if not isinstance(end.__context__, BrokenPipeError):
            raise
        # Python flushes at its end, into nothing.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_DONE)
    except OSError as error:
        if error.filename is not None:
            _fail(f"{error.filename}: {error.strerror}", EXIT_BAD_INPUT)
        if error.errno not in _NO_ROOM:
            raise
        _fail(f"the output cannot be written: {error.strerror}", EXIT_BAD_INPUT)
    except Exception as error:
        expected = _expected(error)
        if expected is None:
            raise
        _fail(str(expected), expected.exit_code)


def _expected(error: Exception) -> CommandError | None:
    """What AWS or the network said, in one line; None for what nobody expects."""
    if "botocore" not in sys.modules:
        return None
    from cdk_blackwell.cli.aws.failures import explain

    return explain(error)


def _usage(error: typer.TyperException) -> str:
    """What was wrong with the words given, and where the right ones are listed."""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "cdk-blackwell"
    message = " ".join(error.format_message().split()).rstrip(".")
    return f"{message} (see '{command} --help')"


def _fail(message: str, code: int) -> NoReturn:
    """One line on stderr, whatever the terminal's width; with ``--json`` an object of JSON."""
    if "--json" in sys.argv:
        print(json.dumps({"error": message, "exit_code": code}), file=sys.stderr)
        sys.exit(code)
    Console(stderr=True, soft_wrap=True).print(
        f"cdk-blackwell: {message}", style="red", markup=False, highlight=False
    )
    sys.exit(code)

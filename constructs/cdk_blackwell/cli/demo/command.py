"""The ``demo`` command: options in, exit code out."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from cdk_blackwell.cli.aws.options import AsJson
from cdk_blackwell.cli.errors import CommandError


def demo(
    directory: Annotated[
        Path, typer.Option(help="Folder for everything the demo writes; replaced each time.")
    ] = Path("build/demo"),
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the embedded AWS; 0 takes a free one.")
    ] = 0,
    model: Annotated[
        str, typer.Option(help="Preset whose family is shrunk to a few million parameters.")
    ] = "llama-3.2-1b",
    record: Annotated[
        Path | None, typer.Option(help="Save the screen as a picture (.svg).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Deploy SmallModelJob into an embedded AWS and train it on real text, on CPUs.

    Needs no AWS account. Writes DIRECTORY/summary.json.
    """
    try:
        from cdk_blackwell.cli.demo.flow import Demo, check_tools
        from cdk_blackwell.cli.demo.screen import Screen
        from cdk_blackwell.cli.demo.settings import DemoFolders
    except ModuleNotFoundError as error:
        raise CommandError(
            f"the demo needs {error.name}: run 'make setup', or install cdk-blackwell[local,train]"
        ) from error
    from cdk_blackwell.planning.model_shape import ModelShape

    application = Path.cwd()
    # The tools that `make setup` installed come before any others of the same names.
    own = [str(Path(sys.executable).parent), str(application / "node_modules" / ".bin")]
    os.environ["PATH"] = os.pathsep.join([*own, os.environ.get("PATH", os.defpath)])
    check_tools(application)
    try:
        shape = ModelShape.preset(model)
    except ValueError as error:
        raise CommandError(f"--model: {error}") from error
    if record is not None:
        check_writable(record)
    # JSON has standard output to itself.
    screen = Screen(record=record is not None, stderr=as_json)
    screen.line(
        "[bold]cdk-blackwell demo[/]: SmallModelJob in an embedded AWS, trained on CPUs\n"
        f"[dim]no account, no network, nothing outside {directory}[/]"
    )
    run = Demo(
        application=application,
        folders=DemoFolders(root=directory.resolve()),
        model=shape,
        screen=screen,
    )
    try:
        run.run(port=port)
    except KeyboardInterrupt:
        screen.line(
            "[yellow]interrupted[/]: everything the demo started has been ended; what it wrote "
            f"is in {directory}"
        )
        raise
    screen.line(
        f"[bold green]Done[/] in {sum(screen.seconds.values()):.0f} s: "
        f"{run.summary.resource_count} resources, {run.summary.steps} steps, "
        f"{run.summary.tokens_per_second:,.0f} tokens/s on this CPU\n"
        f"[dim]{directory / 'summary.json'} has every number and request[/]\n"
        "[dim]next: docs/tutorial.md, or .venv/bin/cdk-blackwell plan --model llama-3.1-8b[/]"
    )
    if as_json:
        typer.echo(run.summary.to_json())
    if record is not None:
        screen.console.save_svg(str(record), title="make demo")


def check_writable(picture: Path) -> None:
    """Find out now, not after five minutes, that the picture cannot be saved."""
    try:
        picture.parent.mkdir(parents=True, exist_ok=True)
        with picture.open("a"):
            pass
    except OSError as error:
        raise CommandError(
            f"--record {picture} cannot be written ({error.strerror}): name another file"
        ) from error

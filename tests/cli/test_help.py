"""The help in a terminal reads as text: paragraphs fill its width, flags show no kind of value."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from cdk_blackwell.cli.help import polish
from cdk_blackwell.cli.main import app


def polished() -> Any:
    command = typer.main.get_command(app)
    polish(command)
    return command


def commands(command: Any) -> Iterator[Any]:
    yield command
    for inner in getattr(command, "commands", {}).values():
        yield from commands(inner)


@pytest.mark.parametrize("command", list(commands(polished())), ids=lambda command: command.name)
def test_no_line_of_the_source_ends_inside_a_paragraph(command: Any) -> None:
    assert all("\n" not in paragraph for paragraph in (command.help or "").split("\n\n"))


def test_flags_show_no_kind_of_value_and_arguments_stand_in_one_pair_of_brackets() -> None:
    lines = CliRunner().invoke(app, ["stop", "--help"], prog_name="cdk-blackwell").stdout
    assert "[[" not in lines
    with typer.Context(command := polished().commands["stop"], info_name="stop") as context:
        shown = {each.name: each.display_type_rich(context) for each in command.get_params(context)}
    assert shown["dry_run"] == shown["help"] == ""
    assert shown["stack"] == "<str>"

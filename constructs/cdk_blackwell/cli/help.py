"""What the terminal's help shows: whole paragraphs, and flags without a kind of value."""

from __future__ import annotations

from typing import Any

import typer


def polish(command: Any) -> None:
    """Change ``command`` and all below it; typer shows docstrings' line ends and ``<bool>``.

    A flag takes no value, and a source's lines break at another width than the terminal's.
    """
    if command.help:
        paragraphs = command.help.split("\n\n")
        command.help = "\n\n".join(" ".join(each.split()) for each in paragraphs)
    for parameter in command.get_params(typer.Context(command)):
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    for inner in getattr(command, "commands", {}).values():
        polish(inner)

"""Writes ``reference/cli.md`` from the command line itself: ``python docs/cli_reference.py``."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import typer

from cdk_blackwell.cli.main import app
from cdk_blackwell.planning import contracts

PAGE = Path(__file__).parent / "reference" / "cli.md"
HEAD = """# Command line

Made from the program's own help: `python docs/cli_reference.py`.

With `--json`, standard output holds JSON and nothing else, and an error is an object on standard
error: `{"error": "what was wrong and what to do", "exit_code": 4}`.

| Exit code | Meaning |
|---|---|
"""
EXIT_CODES = {
    contracts.EXIT_DONE: "done",
    contracts.EXIT_CHECK_FAILED: "a check of the command's own failed, or the run it waited for",
    contracts.EXIT_BAD_INPUT: "bad input; one line on standard error says what",
    contracts.EXIT_DOES_NOT_FIT: "does not fit, or a rule refused it; `--json` is still printed",
    contracts.EXIT_AWS_REFUSED: "AWS said no",
    contracts.EXIT_INTERRUPTED: "interrupted",
}
_NAMES = {int: "number", float: "number", Path: "file"}


def document() -> str:
    """The page."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES.items())
    commands = _commands(typer.main.get_command(app), ("cdk-blackwell",))
    return HEAD + codes + "".join(map(_section, commands))


def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command that does something, groups opened, in the order of the program's help."""
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        if not inner.hidden:
            yield from _commands(inner, (*path, name))


def _section(entry: tuple[tuple[str, ...], Any]) -> str:
    path, command = entry
    shown = [each for each in command.params if not getattr(each, "hidden", False)]
    arguments = [each for each in shown if each.param_type_name == "argument"]
    options = [each for each in shown if each.param_type_name == "option" and each.name != "help"]
    usage = [*path, *("[OPTIONS]" if options else "",), *map(_argument, arguments)]
    parts = [
        f"\n## {' '.join(path[1:])}\n",
        f"\n{_prose(command.help)}\n",
        f"\n```text\n{' '.join(filter(None, usage))}\n```\n",
    ]
    if arguments:
        parts.append("\n| Argument | |\n|---|---|\n")
        parts += [f"| `{_argument(each)}` | {_cell(each)} |\n" for each in arguments]
    if options:
        parts.append("\n| Option | |\n|---|---|\n")
        parts += [f"| {_names(each)} | {_cell(each)} |\n" for each in options]
    return "".join(parts)


def _argument(parameter: Any) -> str:
    name = (parameter.metavar or parameter.name).upper().strip("[]").replace("|", " or ")
    return name if parameter.required else f"[{name}]"


def _names(option: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*option.opts, *option.secondary_opts))
    if option.is_flag:
        return names
    return f"{names} *{_value(option)}*"


def _value(option: Any) -> str:
    """What to write after the option: one of few values, or a name for the kind of value."""
    kind = option.type_descriptor.annotation
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    return str(option.metavar or _NAMES.get(kind, "text")).lower().replace("|", " or ")


def _cell(parameter: Any) -> str:
    """The help, with what holds where nothing is given."""
    words = _prose(getattr(parameter, "help", None)).replace("|", "\\|").replace("\n", " ")
    default = parameter.default
    plain = isinstance(default, (str, int, float)) and not isinstance(default, bool)
    if parameter.required:
        words += " Required."
    elif plain and default != "" and "default" not in words.lower():
        words += f" Default: {default}."
    return words.strip()


def _prose(text: str | None) -> str:
    """Without the marks of the terminal; paragraphs stay."""
    paragraphs = re.split(r"\n\s*\n", re.sub(r"\x08|\[/?(?:bold|dim)\]", "", text or ""))
    joined = (" ".join(paragraph.split()) for paragraph in paragraphs)
    # A bracketed word would be read as a link.
    return "\n\n".join(joined).replace("<", "&lt;").replace("[", "\\[")


if __name__ == "__main__":
    PAGE.write_text(document())

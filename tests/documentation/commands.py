"""Every command line of the documentation is checked against the program it names.

``cdk-blackwell plan`` runs, and the application of a ``cdk`` line is built; what needs an account,
a deployed stack or minutes is only parsed, by the program's own parser: an option that does not
exist fails.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import metadata
from pathlib import Path
from typing import Final

import typer
from aws_cdk import App
from sybil import Example
from typer.core import TyperCommand, TyperGroup
from typer.testing import CliRunner

from app import build
from cdk_blackwell.cli.main import app
from cdk_blackwell.planning.contracts import EXIT_DOES_NOT_FIT, EXIT_DONE

ROOT: Final = Path(__file__).parents[2]
FREE: Final = frozenset({"aws", "cd", "export", "git", "pip", "source", "pytest"})
"""Other people's programs; of pip only the extras are checked."""
STACKS: Final = frozenset(
    {"--all", "FoundationStack", "SmallModelStack", "MidModelStack", "LargeShardedStack"}
)
SLOW_OPTIONS: Final = frozenset({"--verify", "--chart", "--measured"})


def check_console(example: Example) -> None:
    """AssertionError names the line that a reader could not run."""
    for line in commands(str(example.parsed)):
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=\S*", words[0]):
            words = words[1:]
        if ">" in words:
            words = words[: words.index(">")]
        if not words:
            continue
        program, arguments = words[0], words[1:]
        if program == "npx":
            program, arguments = arguments[0], arguments[1:]
        if program in FREE and program != "pip":
            continue
        check = CHECKS.get(program)
        assert check, f"no check for {program!r} in: {line}"
        check(arguments)


def commands(block: str) -> list[str]:
    """Lines of a block, continued lines joined, parts of ``a && b`` apart."""
    joined = re.sub(r"\\\n\s*", " ", block)
    return [part.strip() for line in joined.splitlines() for part in line.split("&&")]


def check_own(words: Sequence[str]) -> None:
    """AssertionError unless ``cdk-blackwell`` takes these arguments; a quick plan is made."""
    if words and words[0] == "plan" and not SLOW_OPTIONS & set(words):
        done = CliRunner().invoke(app, list(words))
        code = getattr(done.exception, "exit_code", done.exit_code)
        assert code in (EXIT_DONE, EXIT_DOES_NOT_FIT), (words, done.output)
        return
    _parse(typer.main.get_group(app), words)


def _parse(command: TyperCommand | TyperGroup, words: Sequence[str]) -> None:
    """Parse as the program would, down to the last subcommand, and run nothing."""
    try:
        context = command.make_context(command.name, list(words))
    except typer.Exit:
        return
    except typer.TyperException as error:
        raise AssertionError(f"cdk-blackwell {' '.join(words)}: {error}") from error
    if isinstance(command, TyperGroup):
        rest = [*context._protected_args, *context.args]
        assert rest, words
        found = command.get_command(context, rest[0])
        assert isinstance(found, TyperCommand | TyperGroup), f"no command {rest[0]!r}"
        _parse(found, rest[1:])


def _check_make(words: Sequence[str]) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for word in words:
        assert "=" in word or word in targets, f"make has no target {word}"


def _check_cdk(words: Sequence[str]) -> None:
    """The ready-made application is made of the context given, and has the stacks named."""
    context: dict[str, str] = {}
    named: list[str] = []
    rest = list(words[1:])
    while rest:
        word = rest.pop(0)
        if word in ("-c", "--context"):
            key, _, context[key] = rest.pop(0).partition("=")
        elif not word.startswith("-"):
            named.append(word)
    if not context:
        assert set(named) <= STACKS, f"no stack of {named}"
        return
    try:
        application = build(App(context=context))
    except ValueError as error:
        raise AssertionError(f"cdk {' '.join(words)}: {error}") from error
    made = {child.node.id for child in application.node.children}
    assert set(named) <= made, f"cdk {' '.join(words)}: only {sorted(made)} are made"


def _check_python(words: Sequence[str]) -> None:
    if words[0] == "-m":
        assert words[1].split(".")[0] in ("cdk_blackwell", "trainer", "venv"), words
        return
    script = ROOT / words[0]
    assert script.is_file(), f"no file {words[0]}"
    text = script.read_text()
    for word in words[1:]:
        if word.startswith("--"):
            assert f'"{word.split("=")[0]}"' in text, f"{words[0]} has no option {word}"


def _check_pip(words: Sequence[str]) -> None:
    known = set(metadata("cdk-blackwell").get_all("Provides-Extra") or [])
    for word in words:
        found = re.search(r"\[([a-z,]+)\]", word)
        if found and ("cdk-blackwell" in word or word.startswith(".")):
            assert set(found[1].split(",")) <= known, f"no such extra: {word}"


CHECKS: Final[dict[str, Callable[[Sequence[str]], None]]] = {
    "cdk": _check_cdk,
    "cdk-blackwell": check_own,
    "make": _check_make,
    "pip": _check_pip,
    "python": _check_python,
    Path(sys.executable).name: _check_python,
}

"""A child process that reads JSON, tells of its progress on stderr, and answers with JSON."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import IO, Any, Final

from rich.console import Console
from rich.markup import escape

TICK_SECONDS: Final = 0.5
PLAIN_INTERVAL_SECONDS: Final = 15.0
"""Without a terminal, a line of progress at most this often."""
LINES_KEPT: Final = 200
"""Of stderr, for a failure's last words."""


class ChildFailedError(Exception):
    """The child ended with an error; the message is the last thing it said."""

    def __init__(self, message: str, *, exit_code: int = 0) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """The child's; 0 when it ended well and only its answer is none."""


def ask_child(
    command: Sequence[str],
    question: Mapping[str, Any],
    *,
    environment: Mapping[str, str],
    title: str,
    console: Console,
) -> dict[str, Any]:
    """Run ``command``, show elapsed time and its last line, and return its answer.

    The child is ended when this is interrupted. ChildFailedError when it fails.
    """
    answer: list[str] = []
    lines: deque[str] = deque(["starting"], maxlen=LINES_KEPT)
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=dict(environment),
        text=True,
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        # Both streams are read at once, so that neither can fill up and stop the child.
        readers = (
            threading.Thread(target=_read_all, args=(child.stdout, answer), daemon=True),
            threading.Thread(target=_read_lines, args=(child.stderr, lines), daemon=True),
        )
        try:
            for reader in readers:
                reader.start()
            with suppress(BrokenPipeError):  # it ended at once; its last line says why
                child.stdin.write(json.dumps(question))
                child.stdin.close()
            _wait(child, lines, title, console)
            for reader in readers:
                reader.join()
        finally:
            if child.poll() is None:
                child.kill()
    if child.returncode != 0:
        raise ChildFailedError(lines[-1], exit_code=child.returncode)
    try:
        found = json.loads("".join(answer))
    except ValueError as error:
        raise ChildFailedError(f"its answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ChildFailedError("its answer is not a JSON object")
    return found


def _read_all(stream: IO[str], into: list[str]) -> None:
    into.append(stream.read())


def _read_lines(stream: IO[str], into: deque[str]) -> None:
    into.extend(line.strip() for line in stream if line.strip())


def _wait(child: subprocess.Popen[str], lines: deque[str], title: str, console: Console) -> None:
    started = last_plain = time.monotonic()
    with console.status(escape(title)) as status:
        while True:
            try:
                child.wait(TICK_SECONDS)
                return
            except subprocess.TimeoutExpired:
                elapsed = time.monotonic() - started
            text = f"{title}: {elapsed:.0f} s, {lines[-1]}"
            status.update(escape(text[: console.width - 4]))
            if not console.is_terminal and time.monotonic() - last_plain > PLAIN_INTERVAL_SECONDS:
                last_plain = time.monotonic()
                console.print(text, markup=False, soft_wrap=True)

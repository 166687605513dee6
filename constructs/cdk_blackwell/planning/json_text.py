"""JSON of any origin: whatever is wrong with a file is one ValueError that names it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

MAXIMUM_BYTES: Final = 8 * 1024**2
"""Far above any model config or trial report; a device or a wrong file is not read to its end."""


def read_json(path: Path, *, what: str) -> Any:
    """The value in a file; ValueError says ``what`` is wrong and how."""
    try:
        with path.open("rb") as file:
            data = file.read(MAXIMUM_BYTES + 1)
    except OSError as error:
        raise ValueError(f"{what} cannot be read: {error.strerror}") from error
    if len(data) > MAXIMUM_BYTES:
        raise ValueError(f"{what} is larger than {MAXIMUM_BYTES // 1024**2} MiB; give another file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{what} is not a text file: {error}") from error
    return parse_json(text, what=what)


def is_there(path: Path) -> bool:
    """Whether the path exists; not so for a name that no file can have."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False


def parse_json(text: str | bytes, *, what: str) -> Any:
    """The value in a text; ValueError where there is none, also for absurd depths and numbers.

    Bytes must be UTF-8, -16 or -32, as ``json.loads`` takes them.
    """
    try:
        return json.loads(text)
    except RecursionError as error:
        raise ValueError(f"{what} is not JSON that anyone writes: it is nested too deep") from error
    except ValueError as error:
        raise ValueError(f"{what} is not JSON: {error}") from error

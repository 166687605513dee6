"""The texts of the program's own sources, as a message shows them: ``…`` stands for a value."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
SOURCES: Final = ("constructs/cdk_blackwell", "training_scripts", "stacks")
VALUE: Final = "…"


@cache
def texts() -> tuple[str, ...]:
    """Every string of the sources, values of f-strings as ``…``."""
    files = [file for folder in SOURCES for file in sorted((ROOT / folder).rglob("*.py"))]
    return tuple({text for file in files for text in _strings(ast.parse(file.read_text()))})


def is_said(message: str) -> bool:
    """Whether some string of the sources has the message's words in this order."""
    words = (re.escape(part.strip()) for part in message.split(VALUE))
    pattern = re.compile(r"\s*.*?\s*".join(words), re.DOTALL)
    return any(pattern.search(text) for text in texts())


def _strings(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(
                str(part.value) if isinstance(part, ast.Constant) else VALUE for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value

"""Blocks of Python: run, or, where they show a file of ``examples/`` whole, compared with it.

The examples are synthesised by their own tests; a page that shows one repeats nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sybil import Document, Example, Region
from sybil.parsers.markdown import PythonCodeBlockParser

ROOT: Final = Path(__file__).parents[2]
MARK: Final = "--8<--"
SNIPPET: Final = re.compile(rf"{MARK}\n(?P<path>\S+)\n{MARK}\s*")
"""How the site's extension ``pymdownx.snippets`` includes a file. Its form in one line would be
Python, which ruff would format."""


class PythonBlockParser(PythonCodeBlockParser):
    """As sybil's own, but a block that is one snippet is not run."""

    def __call__(self, document: Document) -> Iterable[Region]:
        for region in super().__call__(document):
            if isinstance(region.parsed, str) and MARK in region.parsed:
                region.evaluator = check_snippet
            yield region


def check_snippet(example: Example) -> None:
    """AssertionError unless the block shows one file of a tested example."""
    found = SNIPPET.fullmatch(str(example.parsed))
    assert found, f"a block is one snippet or none: {example.parsed}"
    path = Path(found["path"])
    assert path.parts[0] == "examples", f"{path} is run by no test; only examples are shown whole"
    assert (ROOT / path).is_file(), f"no file {path}"

"""Numbers as people write them: ``131_072``, ``131,072``, ``32k``, ``4M``, ``1.5T``."""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

import typer

BINARY_SUFFIXES: Final = {"k": 2**10, "m": 2**20}
"""Lengths and batches are spoken of in powers of two: 128K of context are 131,072 tokens."""
DECIMAL_SUFFIXES: Final = {"k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
"""Amounts of data are spoken of in powers of ten: 300B are 300,000,000,000 tokens."""

LONGEST: Final = 40
"""Characters; more is a slip, and Python refuses to read thousands of digits."""
_NUMBER = re.compile(r"(\d+(?:[_,]\d+)*)(\.\d+)?([a-z])?", re.IGNORECASE | re.ASCII)


def count(text: str) -> int:
    """A plain whole number, such as of nodes; no suffix."""
    return _read(text, {}, example="8")


def length(text: str) -> int:
    """Tokens of a sequence or a batch; ``k`` is 1,024 and ``M`` is 1,048,576."""
    return _read(text, BINARY_SUFFIXES, example="32768, 32_768 or 32k (k = 1,024)")


def amount(text: str) -> int:
    """Tokens of a dataset; ``k``, ``M``, ``B`` and ``T`` are powers of a thousand."""
    return _read(text, DECIMAL_SUFFIXES, example="300_000_000_000 or 300B (B = 1,000,000,000)")


def money(text: str) -> float:
    """US dollars; a decimal point, and commas or underscores between digits."""
    match = _NUMBER.fullmatch(text.strip().removeprefix("$"))
    if match is None or match[3] or len(text) > LONGEST:
        raise typer.BadParameter(
            f"{text[:LONGEST]!r} is not a plain amount of US dollars; give 98.84"
        )
    return float(_digits(match[1]) + (match[2] or ""))


def _read(text: str, suffixes: dict[str, int], *, example: str) -> int:
    match = _NUMBER.fullmatch(text.strip())
    suffix = match[3].lower() if match and match[3] else ""
    if match is None or len(text) > LONGEST or (suffix and suffix not in suffixes):
        raise typer.BadParameter(f"{text[:LONGEST]!r} is not a plain whole number; give {example}")
    value = Decimal(_digits(match[1]) + (match[2] or "")) * suffixes.get(suffix, 1)
    if value != value.to_integral_value():
        raise typer.BadParameter(f"{text!r} is not a plain whole number; give {example}")
    return int(value)


def _digits(text: str) -> str:
    return text.replace("_", "").replace(",", "")

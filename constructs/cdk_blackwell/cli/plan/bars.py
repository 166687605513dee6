"""Numbers as rows of block characters."""

from __future__ import annotations

from typing import Final

from rich.text import Text

_EIGHTHS: Final = " ▏▎▍▌▋▊▉"
_FULL: Final = "█"
_LIMIT: Final = "│"


def bar(value: float, *, scale: float, width: int, style: str, start: float = 0.0) -> Text:
    """``value`` drawn to ``scale`` (the whole width), beginning at ``start``.

    Parts that follow each other in a stack begin where the one before ended, to whole characters.
    """
    offset = round(start / scale * width)
    eighths = max(1, round(value / scale * width * 8)) if value > 0 else 0
    whole, rest = divmod(min(eighths, 8 * (width - offset)), 8)
    drawn = _FULL * whole + (_EIGHTHS[rest] if rest else "")
    return Text(" " * offset).append(drawn, style=style)


def gauge(value: float, *, limit: float, scale: float, width: int, style: str) -> Text:
    """``value`` against a ``limit`` that is marked by a line."""
    filled = min(width, round(value / scale * width))
    mark = min(width - 1, round(limit / scale * width))
    cells = Text()
    for position in range(width):
        if position == mark:
            cells.append(_LIMIT, style="bold")
        else:
            cells.append(_FULL if position < filled else "·", style if position < filled else "dim")
    return cells

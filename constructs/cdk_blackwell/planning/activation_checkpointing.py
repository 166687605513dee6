"""The syntax of ``activation_checkpointing``: which blocks recompute their activations."""

from __future__ import annotations

import re
from typing import Final

_EVERY = re.compile(r"every:([1-9]\d{0,3})")

CHECKPOINTING_FORMS: Final = "none, selective, full, every:K"


def checkpointing_interval(activation_checkpointing: str) -> int | None:
    """K of ``every:K``, 1 for ``full``, None for ``none`` and ``selective``; else ValueError."""
    if activation_checkpointing in ("none", "selective"):
        return None
    if activation_checkpointing == "full":
        return 1
    match = _EVERY.fullmatch(str(activation_checkpointing))
    if match is None:
        raise ValueError(
            f"activation_checkpointing is {activation_checkpointing!r}; allowed are "
            f"{CHECKPOINTING_FORMS} with K from 1 to 9999"
        )
    return int(match.group(1))

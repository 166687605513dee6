"""Entrypoint of the tier up to 7B: one node, BF16, no or little activation checkpointing.

What the recipe decided stands in ``run.json``; this file only says which recipe it must be.
"""

from __future__ import annotations

import os
from typing import Final

from trainer.entry import enter

TIER: Final = "small"

if __name__ == "__main__":
    raise SystemExit(enter(TIER, os.environ))

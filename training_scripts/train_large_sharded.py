"""Entrypoint of the tier from 30B: one model sharded over several nodes.

What the recipe decided stands in ``run.json``; this file only says which recipe it must be.
"""

from __future__ import annotations

import os
from typing import Final

from trainer.entry import enter

TIER: Final = "large-sharded"

if __name__ == "__main__":
    raise SystemExit(enter(TIER, os.environ))

"""Entrypoint of the tier from 7B to 30B: checkpointed activations, 8-bit products, growing batches.

What the recipe decided stands in ``run.json``; this file only says which recipe it must be.
"""

from __future__ import annotations

import os
from typing import Final

from trainer.entry import enter

TIER: Final = "mid"

if __name__ == "__main__":
    raise SystemExit(enter(TIER, os.environ))

"""One NVIDIA GPU, on which this process is rank 0 of one: whole runs of the trainer, and figures.

What a test measures goes into the session's figures, not into its assertions: how fast a machine is
decides nothing, and a ratio of two times only tells something to a person.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch

from cdk_blackwell.planning.run_spec import Precision, RunSpec
from tests.distributed.forked import Told
from tests.training_scripts.tiny import write_dataset
from trainer.container import Container
from trainer.parallel import World
from trainer.precision import MINIMUM_CAPABILITY
from trainer.rank_state import RankReporter
from trainer.run import train
from trainer.signals import StopFlag

OUT: Final = Path(os.environ.get("OUT") or "build/gpu")
FIGURES: Final = OUT / "figures.json"


def missing_gpu() -> str | None:
    """Why these tests cannot run here; None when they can."""
    if torch.cuda.is_available():
        return None
    built = torch.version.cuda or "none"
    return f"no NVIDIA GPU: torch {torch.__version__} (built for CUDA {built}) finds none"


def missing_precision(precision: Precision, capability: tuple[int, int], name: str) -> str | None:
    """Why a GPU cannot compute in a precision; None when it can."""
    needed = MINIMUM_CAPABILITY.get(precision, (8, 0))
    if capability >= needed:
        return None
    wanted, found = ("".join(map(str, each)) for each in (needed, capability))
    return f"{precision} needs SM{wanted} or later: {name} is SM{found}"


class Steps(RankReporter):
    """Looks at something after each step, and may ask for a stop as SIGTERM would."""

    def __init__(
        self, *, stop_at: int | None = None, look: Callable[[], Any] = lambda: None
    ) -> None:
        super().__init__(rank=0, folder=None)
        self.stop = StopFlag(self)
        self.seen: dict[int, Any] = {}
        self._stop_at, self._look = stop_at, look

    def advance(self, step: int) -> None:
        super().advance(step)
        self.seen[step] = self._look()
        if step == self._stop_at:
            self.stop.requested, self.stop.requested_at = True, time.monotonic()


def run(spec: RunSpec, root: Path, world: World, *, steps: Steps | None = None) -> Told:
    """A whole run below ``root``; learnable tokens are made where no dataset lies yet."""
    dataset = root / "input" / "data" / "dataset"
    if not dataset.exists():
        # Enough for the longest sequence that is used here.
        write_dataset(dataset, sequences=8192, held_out=512)
    config = root / "input" / "config" / "resourceconfig.json"
    config.parent.mkdir(parents=True, exist_ok=True)
    config.write_text(
        json.dumps({"current_host": "algo-1", "hosts": ["algo-1"], "network_interface_name": "lo"})
    )
    steps = steps or Steps()
    container = Container(root=root, checkpoints=root / "checkpoints", run_uri=None, attempt=1)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        outcome = train(spec, container, world, stop=steps.stop, ranks=steps)
    records = [json.loads(line) for line in printed.getvalue().splitlines()]
    return Told(step=outcome.step, stopped=outcome.stopped, records=records)

"""How often to write a checkpoint, and what failures cost."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

GPU_HOURS_PER_FAILURE: Final = 50_000
"""One interruption in so many GPU-hours: Llama 3's pre-training on H100 (published); 504 B200 saw
one GPU fault in 66,500. B200 on SageMaker: no number found."""
BLOCKED_SECONDS: Final = 5.0
"""Training stands still while a checkpoint is copied to host memory; the rest is written behind
it. This project's assumption; a trial run's own number is better."""
LONGEST_INTERVAL_SECONDS: Final = 3600.0
"""Cap on the interval: on few GPUs the formula asks for hours, and losing hours is what people
complain of."""
RESTART_SECONDS: Final = 900.0
"""From a failure to the next step: noticing, starting hosts or processes, NCCL, reading the
checkpoint. This project's assumption; a wait for capacity comes on top."""


def mean_seconds_between_failures(gpus: int) -> float:
    """Of a whole job: any GPU's failure stops it."""
    return GPU_HOURS_PER_FAILURE * 3600 / gpus


def checkpoint_interval_seconds(
    gpus: int, *, blocked_seconds: float = BLOCKED_SECONDS, write_seconds: float = 0.0
) -> float:
    """Young's and Daly's ``sqrt(2 * blocked * time between failures)``, at most an hour.

    Never shorter than ``write_seconds``: a checkpoint must be complete before the next begins.
    """
    best = math.sqrt(2 * blocked_seconds * mean_seconds_between_failures(gpus))
    return max(write_seconds, min(LONGEST_INTERVAL_SECONDS, best))


@dataclass(frozen=True, kw_only=True)
class ExpectedLoss:
    """To failures and to the checkpoints that limit it."""

    failures: float
    """Expected over the run."""
    hours: float
    """Work done twice, restarts, and time blocked by checkpoints."""


def expected_loss(
    *,
    hours: float,
    gpus: int,
    interval_seconds: float,
    blocked_seconds: float = BLOCKED_SECONDS,
) -> ExpectedLoss:
    """For ``hours`` of training: a failure loses half an interval on average, and a restart."""
    failures = hours * gpus / GPU_HOURS_PER_FAILURE
    blocked = hours * blocked_seconds / interval_seconds
    repeated = failures * (interval_seconds / 2 + RESTART_SECONDS) / 3600
    return ExpectedLoss(failures=failures, hours=blocked + repeated)

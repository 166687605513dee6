"""What can happen to a run, and the EventBridge events that tell other systems of it.

Data only: the constructs make rules of it, the controller sends by it, the documentation shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal, get_args

Happening = Literal[
    "launched",
    "resubmitted",
    "waits to be resubmitted",
    "stopped while launching",
    "stopped by a deploy",
    "could not be launched",
    "completed",
    "failed",
    "stopped",
]

EVENT_SOURCE: Final = "cdk-blackwell"
"""``source`` of the controller's events on the account's default bus."""

DETAIL_TYPES: Final[Mapping[Happening, str]] = {
    "launched": "Training Run Launched",
    "resubmitted": "Training Run Resubmitted",
    "waits to be resubmitted": "Training Run Waiting",
    "stopped while launching": "Training Run Stopping",
    "stopped by a deploy": "Training Run Stopping",
    "could not be launched": "Training Run Refused",
    "completed": "Training Run Completed",
    "failed": "Training Run Failed",
    "stopped": "Training Run Stopped",
}
assert set(DETAIL_TYPES) == set(get_args(Happening))

DETAIL: Final[Mapping[str, str]] = {
    "job": "prefix of the job's names",
    "run_id": "the run",
    "attempt": "number of the attempt, from 1; null before any",
    "training_job": "name of the SageMaker training job; empty before any",
    "what": "what happened, in the words of the message's subject",
    "why": "what happened and what can be done, in sentences",
    "reason": "SageMaker's own words about the end of the last attempt, or empty",
    "spent_usd": "by what SageMaker billed and the price in the stack; null without a price",
    "max_cost_usd": "ceiling of the run; null without one",
    "last_complete_step": "of the newest complete checkpoint when the last attempt ended",
    "files": "S3 prefix of the run",
    "console": "page of the training job in the AWS console",
}
"""Keys of ``detail``, always all of them."""

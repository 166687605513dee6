"""Trials: short runs in which the trainer tries candidates and writes ``trial.json``. Pure.

A trial is a run like any other (claimed, frozen, stopped, reported, its id used up) with three
differences that are frozen into its definition: the container is told, it has one attempt, and its
time is bounded. So nothing else needs to know of it but the words for people.
"""

from __future__ import annotations

import json
from typing import Final

from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.request import run_location
from cdk_blackwell.planning.contracts import (
    CONTAINER_ARGUMENTS,
    ENV_TRIAL,
    ENV_TRIAL_SECONDS,
    TRIAL_FILE,
    TRIAL_MAXIMUM_SECONDS,
)

TRIAL: Final = "1"
"""Value of ``CDKB_TRIAL``."""


def as_trial(definition: JobDefinition) -> JobDefinition:
    """The definition of a trial; ValueError for a job whose own script would not know of it."""
    request = definition.request
    arguments = request["AlgorithmSpecification"].get("ContainerArguments", CONTAINER_ARGUMENTS)
    if tuple(arguments) != CONTAINER_ARGUMENTS:
        raise ValueError(
            "action 'trial' is not possible: this job's container runs a script of its own, which "
            "would train instead of trying candidates. Start a run with a small train_tokens."
        )
    limits = request["StoppingCondition"]
    seconds = min(int(limits["MaxRuntimeInSeconds"]), TRIAL_MAXIMUM_SECONDS)
    changes = {
        "Environment": {
            **request.get("Environment", {}),
            ENV_TRIAL: TRIAL,
            ENV_TRIAL_SECONDS: str(seconds),
        },
        "StoppingCondition": {**limits, "MaxRuntimeInSeconds": seconds},
    }
    changed = {**definition.to_dict(), "request": {**request, **changes}, "maximum_attempts": 1}
    return JobDefinition.from_json(json.dumps(changed))


def is_trial(definition: JobDefinition) -> bool:
    """Whether a frozen definition is a trial's."""
    return bool(definition.request.get("Environment", {}).get(ENV_TRIAL) == TRIAL)


def end_of_trial(definition: JobDefinition, run_id: str) -> str:
    """What to tell of a trial that completed."""
    report = f"{run_location(definition, run_id).uri}/{TRIAL_FILE}"
    return (
        f"The trial completed. Its report is {report}; 'cdk-blackwell trial {run_id} --report' "
        "shows it, and 'cdk-blackwell plan --measured' plans with its numbers."
    )

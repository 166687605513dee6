"""The complete CreateTrainingJob request of one attempt, made from the job's definition.

Pure: the controller calls it at launch, tests call it to check the same request against
SageMaker's own service model.
"""

from __future__ import annotations

import re
from typing import Any, Final

from cdk_blackwell.lifecycle.handler.definition import (
    PLACEHOLDER_ATTEMPT,
    PLACEHOLDER_JOB_NAME,
    PLACEHOLDER_RUN_ID,
    PLACEHOLDER_RUN_URI,
    PLACEHOLDER_STACK_ID,
    JobDefinition,
)
from cdk_blackwell.planning.contracts import (
    TAG_ATTEMPT,
    TAG_JOB,
    TAG_RUN_ID,
    TAG_STACK,
    RunLocation,
    training_job_name,
)
from cdk_blackwell.planning.run_spec import RunSpec

_LEFT_OVER: Final = re.compile(r"\{\{[A-Za-z_]*\}\}")


def run_location(definition: JobDefinition, run_id: str) -> RunLocation:
    """Where this run lives in the job's checkpoint bucket."""
    return RunLocation(bucket=definition.checkpoint_bucket, job=definition.job, run_id=run_id)


def run_spec(definition: JobDefinition, run_id: str) -> RunSpec:
    """The run's ``run.json``; ValueError names what is wrong with the definition."""
    return RunSpec.from_dict({**definition.run, "run_id": run_id})


def render_request(
    definition: JobDefinition,
    *,
    stack_id: str,
    run_id: str,
    attempt: int,
    run_seconds: int | None = None,
) -> dict[str, Any]:
    """The whole CreateTrainingJob request of one attempt.

    Placeholders are replaced in every string, hyperparameters are a flat copy of ``run.json``, and
    the identity tags are always set: ownership of an existing job is judged by them. ``attempt``
    counts from 1; ``run_seconds`` replaces MaxRuntimeInSeconds where less is affordable. ValueError
    when the run's id, its ``run.json`` or a placeholder is wrong.
    """
    name = training_job_name(job=definition.job, stack_id=stack_id, run_id=run_id, attempt=attempt)
    values = {
        PLACEHOLDER_JOB_NAME: name,
        PLACEHOLDER_RUN_ID: run_id,
        PLACEHOLDER_ATTEMPT: str(attempt),
        PLACEHOLDER_RUN_URI: run_location(definition, run_id).uri,
        PLACEHOLDER_STACK_ID: stack_id,
    }
    request = _replace(definition.request, values, "request")
    if run_seconds is not None:
        request["StoppingCondition"] = {
            **request["StoppingCondition"],
            "MaxRuntimeInSeconds": run_seconds,
        }
    identity = {
        TAG_JOB: definition.job,
        TAG_RUN_ID: run_id,
        TAG_ATTEMPT: str(attempt),
        TAG_STACK: stack_id,
    }
    others = [tag for tag in request.get("Tags", []) if tag["Key"] not in identity]
    return {
        **request,
        "TrainingJobName": name,
        "HyperParameters": run_spec(definition, run_id).hyperparameters(),
        "Tags": others + [{"Key": key, "Value": value} for key, value in identity.items()],
    }


def _replace(value: Any, values: dict[str, str], where: str) -> Any:
    if isinstance(value, str):
        for placeholder, text in values.items():
            value = value.replace(placeholder, text)
        unknown = _LEFT_OVER.search(value)
        if unknown:
            raise ValueError(
                f"{where} has the unknown placeholder {unknown[0]}; "
                f"allowed are {', '.join(sorted(values))}"
            )
        return value
    if isinstance(value, dict):
        return {key: _replace(item, values, f"{where}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace(item, values, f"{where}[{i}]") for i, item in enumerate(value)]
    return value

"""One run that differs from the deployed definition: values of ``run.json`` by dotted name.

``{"recipe.micro_batch_size": 2, "train_tokens": 1000000}``. Only what a person may vary from run to
run; the model, the layout and the data belong to the deploy. The changed definition is frozen with
the run, so that every later attempt has the same values. Pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from typing import Any, Final

from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.request import run_spec
from cdk_blackwell.planning.run_spec import RunSpec

SECTIONS: Final = ("recipe", "checkpoint", "limits")
"""Objects of ``run.json`` whose values may be overridden, beside ``train_tokens``."""


def override(definition: JobDefinition, overrides: Mapping[str, Any], run_id: str) -> JobDefinition:
    """The definition with these values; ValueError names a wrong name, type or value."""
    allowed = _names(definition)
    run = deepcopy(definition.run)
    for name, value in overrides.items():
        if name not in allowed:
            raise ValueError(
                f"override {name!r} is not known; allowed are {', '.join(sorted(allowed))}"
            )
        *path, last = name.split(".")
        target = run
        for part in path:
            target = target[part]
        target[last] = value
    changed = JobDefinition.from_json(json.dumps({**definition.to_dict(), "run": run}))
    _check_batch(run_spec(changed, run_id))
    return changed


def _check_batch(spec: RunSpec) -> None:
    """The trainer would refuse it too, but only once the instances are held."""
    ranks, sequences = spec.layout.data_parallel, spec.global_batch_sequences
    if sequences % ranks:
        raise ValueError(
            f"recipe.global_batch_tokens {spec.recipe.global_batch_tokens} is {sequences} "
            f"sequences of {spec.recipe.sequence_length} tokens a step; a multiple of {ranks} is "
            "needed, one for each data-parallel rank"
        )


def _names(definition: JobDefinition) -> set[str]:
    names = {"train_tokens"}
    for section in SECTIONS:
        for key, value in definition.run[section].items():
            if isinstance(value, Mapping):
                names |= {f"{section}.{key}.{inner}" for inner in value}
            else:
                names.add(f"{section}.{key}")
    return names

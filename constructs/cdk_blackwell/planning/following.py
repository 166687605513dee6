"""A plan that follows a trial: what the trial's winner ran with is taken, not searched again.

A trial says more than how fast this cluster is: its winner is the layout and recipe that ran, and
ran fastest. It says so of one model, number of GPUs, sequence length and global batch. For another
question only its efficiency is of use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final

from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.hardware import P6_B200
from cdk_blackwell.planning.recipes import LayoutOverrides
from cdk_blackwell.planning.request import Request
from cdk_blackwell.planning.trial import TrialCandidate, TrialReport

_RECIPE: Final = (
    "precision",
    "micro_batch_size",
    "activation_checkpointing",
    "loss_chunks",
    "compile",
    "bf16_edge_blocks",
)
"""What speed and memory depend on; seed and learning rates are the request's own."""
_LAYOUT: Final = tuple(item.name for item in fields(LayoutOverrides))


def follow_trial(request: Request) -> Request:
    """The request with all that it left open as in its trial's winner.

    Unchanged without a trial, without a winner, and where the two contradict each other.
    """
    winner = _winner(request.measured)
    if request.measured is None or winner is None or contradictions(request):
        return request
    return request.changed({**_size(request.measured.gpus, request), **_choices(winner, request)})


def contradictions(request: Request) -> tuple[str, ...]:
    """What is asked for that the trial's winner did not run with, each in words; sorted by weight.

    Empty where there is no trial or no winner.
    """
    report, winner = request.measured, _winner(request.measured)
    if report is None or winner is None:
        return ()
    return tuple(_differences(request, report, winner))


def check_followed(request: Request) -> None:
    """PlanError, which names each of them, where a request and its trial contradict each other."""
    found = contradictions(request)
    if found:
        raise PlanError(
            f"the trial in 'measured' is of something else: {'; '.join(found)}. Leave out what "
            "differs, or run a trial of this job, or plan without one"
        )


def _winner(report: TrialReport | None) -> TrialCandidate | None:
    if report is None or report.winner is None:
        return None
    return report.candidates[report.winner]


def _differences(request: Request, report: TrialReport, winner: TrialCandidate) -> Iterator[str]:
    if request.model != report.model:
        same = request.model.name == report.model.name
        yield f"model {request.model.name}, the trial's {report.model.name}" + (
            " has another shape" if same else ""
        )
    gpus = request.gpus
    if gpus is None and request.instance_count is not None:
        gpus = request.instance_count * P6_B200.gpus
    if gpus is not None and gpus != report.gpus:
        yield f"{gpus} GPUs, the trial's {report.gpus}"
    if request.sequence_length != winner.recipe.sequence_length:
        yield (
            f"sequence_length {request.sequence_length}, the trial's "
            f"{winner.recipe.sequence_length}"
        )
    for name, value in _values(winner, request).items():
        asked = request.value(name)
        if asked is not None and asked != value:
            yield f"{name} {asked}, the winner's {value}"


def _values(winner: TrialCandidate, request: Request) -> Mapping[str, Any]:
    """Settings of the winner by the names that a request uses."""
    recipe, layout = winner.recipe, winner.layout
    found: dict[str, Any] = {"global_batch_tokens": recipe.global_batch_tokens}
    found |= {name: getattr(layout, name) for name in _LAYOUT}
    found |= {name: getattr(recipe, name) for name in _RECIPE}
    if request.overrides.optimizer is None:
        found["optimizer_implementation"] = recipe.optimizer.implementation
    return found


def _choices(winner: TrialCandidate, request: Request) -> Mapping[str, Any]:
    found = _values(winner, request)
    return {name: value for name, value in found.items() if request.value(name) is None}


def _size(gpus: int, request: Request) -> Mapping[str, Any]:
    """The trial's GPUs as whole instances where they are some, so that a tier's limits hold."""
    if request.gpus is not None or request.instance_count is not None:
        return {}
    if gpus % P6_B200.gpus:
        return {"gpus": gpus}
    return {"instance_count": gpus // P6_B200.gpus}

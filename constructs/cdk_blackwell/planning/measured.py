"""From a trial run's numbers to an efficiency: what was measured instead of what was assumed."""

from __future__ import annotations

from dataclasses import replace

from cdk_blackwell.planning.efficiency import Efficiency
from cdk_blackwell.planning.errors import PlanError
from cdk_blackwell.planning.throughput import (
    ThroughputEstimate,
    default_efficiency,
    estimate_throughput,
)
from cdk_blackwell.planning.trial import TrialCandidate, TrialReport


def measured_efficiency(report: TrialReport) -> Efficiency:
    """The assumed shares of peak with all times scaled so that the winner's speed comes out.

    The other candidates that ran tell how well one factor describes them all; their spread stands
    in ``source``. PlanError when no candidate ran, or faster than the GPU can.
    """
    assumed = default_efficiency()
    ratios = [
        (candidate, _estimate(report, candidate, assumed).tokens_per_second_per_gpu / speed)
        for candidate in report.candidates
        if (speed := candidate.tokens_per_second_per_gpu) is not None and candidate.outcome == "ok"
    ]
    if report.winner is None or not ratios:
        raise PlanError(
            f"the trial run has no winner ({report.reason or 'no reason given'}); plan without it, "
            "or run a trial in which one candidate succeeds"
        )
    winner = report.candidates[report.winner]
    reached = _estimate(report, winner, assumed)
    speed = winner.tokens_per_second_per_gpu or 0.0
    utilisation = reached.mfu * speed / reached.tokens_per_second_per_gpu
    if utilisation > 1:
        raise PlanError(
            f"the trial run's winner reports {speed:.6g} tokens/s per GPU, which is "
            f"{utilisation:.3g} times the peak of the GPU: run the trial again"
        )
    factor = next(ratio for candidate, ratio in ratios if candidate is winner)
    others = [factor / ratio for candidate, ratio in ratios if candidate is not winner]
    spread = (
        f"; the {len(others)} other{'s' if len(others) > 1 else ''} ran at {min(others):.2f} to "
        f"{max(others):.2f} of what that predicts"
        if others
        else ""
    )
    return Efficiency(
        name="measured",
        source=(
            f"measured in a trial run of {report.model.name} on {report.gpus} GPUs: the winner "
            f"reached {winner.tokens_per_second_per_gpu:,.0f} tokens/s per GPU, {1 / factor:.2f} "
            f"times what {assumed.name} assumes{spread}"
        ),
        values=replace(assumed.values, time_factor=assumed.values.time_factor * factor),
    )


def _estimate(
    report: TrialReport, candidate: TrialCandidate, assumed: Efficiency
) -> ThroughputEstimate:
    return estimate_throughput(
        report.model, layout=candidate.layout, recipe=candidate.recipe, efficiency=assumed
    )

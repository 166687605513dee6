"""A trial: one torchrun per candidate, ``trial.json`` after each of them.

Every host walks through the same candidates and meets the others at each one's rendezvous, so they
stay in step whatever becomes of one of them. The first host, which has rank 0, writes the report.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from cdk_blackwell.planning.contracts import (
    ENV_TRIAL_SECONDS,
    SCHEMA_VERSION,
    TRIAL_FILE,
    TRIAL_MAXIMUM_SECONDS,
    Failure,
)
from cdk_blackwell.planning.run_spec import Layout, Recipe, RunSpec
from cdk_blackwell.planning.trial import Outcome, TrialCandidate, TrialReport
from trainer.container import Container
from trainer.trial_recorder import MEASURED_FILE

LOSS_MARGIN: Final = 1.0
"""Nats above ln(vocabulary), the loss of guessing, that a sane start may show (assumed)."""
SHARE_OF_TIME: Final = 0.9
"""Of the job's time: the rest went before the launcher or is for the report (assumed)."""


def seconds_for_all(environment: Mapping[str, str]) -> float:
    """What all candidates together may take, from the start of the launcher."""
    text = environment.get(ENV_TRIAL_SECONDS, "")
    return SHARE_OF_TIME * (int(text) if text.isdecimal() else TRIAL_MAXIMUM_SECONDS)


def read_candidate(
    folder: Path,
    layout: Layout,
    recipe: Recipe,
    failure: Failure | None,
    *,
    ranks: int,
    vocabulary: int,
    hung: bool,
) -> TrialCandidate:
    """From what rank 0 measured, or why there is nothing, to an entry of the report."""
    lines: list[dict[str, float]] = []
    if failure is None:
        path = folder / MEASURED_FILE
        lines = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    outcome: Outcome = "ok"
    message = ""
    last: dict[str, float] = lines[-1] if len(lines) > 1 else {}
    if failure is not None:
        outcome, message = "failed", failure.message
        if failure.kind == "out_of_memory":
            outcome = "out_of_memory"
        elif hung:
            outcome = "hung"
    elif not last:
        outcome, message = "failed", "it ended before its measured steps did"
    else:
        problem = _loss_problem(last.get("loss"), vocabulary)
        if problem:
            outcome, message = "failed", problem
        elif last["loss"] >= lines[0].get("loss", math.inf):
            # A few steps prove nothing, so this is told and decides nothing.
            message = f"the loss did not fall: {lines[0]['loss']:.3f}, then {last['loss']:.3f}"
    speed = last.get("tokens_per_second") if outcome == "ok" else None
    mfu = last.get("mfu")
    loss = last.get("loss")
    return TrialCandidate(
        layout=layout,
        recipe=recipe,
        outcome=outcome,
        tokens_per_second_per_gpu=None if speed is None else speed / ranks,
        mfu=mfu / 100 if mfu else None,
        allocated_gib=last.get("memory_allocated_gib"),
        reserved_gib=last.get("memory_reserved_gib"),
        loss=loss if loss is not None and math.isfinite(loss) else None,
        message=message,
    )


def _loss_problem(loss: float | None, vocabulary: int) -> str | None:
    limit = math.log(vocabulary) + LOSS_MARGIN
    if loss is None or not math.isfinite(loss):
        return f"the loss is {loss}, not a number"
    if loss > limit:
        return f"the loss is {loss:.2f}, above ln(vocabulary) + {LOSS_MARGIN:.0f} = {limit:.2f}"
    return None


def make_report(spec: RunSpec, tried: Sequence[TrialCandidate], *, planned: int) -> TrialReport:
    """All that was tried so far and the fastest of it; ``planned`` candidates there are in all."""
    speeds = {
        index: candidate.tokens_per_second_per_gpu
        for index, candidate in enumerate(tried)
        if candidate.tokens_per_second_per_gpu is not None
    }
    winner = max(speeds, key=lambda index: speeds[index]) if speeds else None
    complete = len(tried) == planned
    so_far = "" if complete else f" So far {len(tried)} of {planned} were tried."
    if not tried:
        reason = f"No candidate was tried to its end.{so_far}"
    elif winner is None:
        outcomes = "; ".join(f"{index}: {c.outcome}: {c.message}" for index, c in enumerate(tried))
        reason = f"No candidate succeeded ({outcomes}).{so_far}"
    else:
        reason = (
            f"Candidate {winner} is the fastest of {len(speeds)} that succeeded, with "
            f"{speeds[winner]:,.1f} tokens/s per GPU"
        )
        if winner and 0 in speeds:
            reason += f", {speeds[winner] / speeds[0]:.2f} times the plan's own"
        reason += f"; {len(tried) - len(speeds)} did not succeed.{so_far}"
    return TrialReport(
        schema_version=SCHEMA_VERSION,
        model=spec.model,
        gpus=spec.layout.gpus,
        complete=complete,
        candidates=tuple(tried),
        winner=winner,
        reason=reason,
    )


def write_report(report: TrialReport, container: Container, announce: Callable[..., None]) -> None:
    """Below ``output/data`` always, and into the run's folder in S3 where there is one.

    S3 that refuses is said and ends nothing: the next candidate's report tries again, and the file
    below ``output/data`` is uploaded with the job's output.
    """
    container.output_data.mkdir(parents=True, exist_ok=True)
    draft = container.output_data / f".{TRIAL_FILE}.tmp"
    draft.write_text(report.to_json(), encoding="utf-8")
    draft.replace(container.output_data / TRIAL_FILE)
    if container.run_uri is None:
        return
    from botocore.exceptions import BotoCoreError, ClientError

    uri = urlsplit(container.run_uri)
    try:
        _s3(container.region).put_object(
            Bucket=uri.netloc,
            Key=f"{uri.path.strip('/')}/{TRIAL_FILE}",
            Body=report.to_json().encode(),
            ContentType="application/json",
        )
    except (BotoCoreError, ClientError) as error:
        announce("trial_not_uploaded", reason=f"{type(error).__name__}: {error}")


def _s3(region: str | None) -> Any:
    import boto3

    return boto3.client("s3", region_name=region)

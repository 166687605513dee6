"""``trial.json``: what short trial runs measured, so that a plan need not assume it.

The trainer writes it into the run's folder (``contracts.TRIAL_FILE``); ``plan --measured`` reads
it. Reading is strict, as for ``run.json``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

from cdk_blackwell.planning.contracts import SCHEMA_VERSION, TRIAL_FILE
from cdk_blackwell.planning.json_text import parse_json
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.run_spec import Layout, Recipe
from cdk_blackwell.planning.strict_json import plain, read_dataclass

Outcome = Literal["ok", "out_of_memory", "failed", "hung"]


@dataclass(frozen=True, kw_only=True)
class TrialCandidate:
    """One layout and recipe, run for some steps. What was not measured is None."""

    layout: Layout
    recipe: Recipe
    outcome: Outcome
    tokens_per_second_per_gpu: float | None
    """After warm-up; None unless the outcome is ``ok``."""
    mfu: float | None
    """Model FLOPs (causal convention) over dense peak; None where the peak is unknown."""
    allocated_gib: float | None
    reserved_gib: float | None
    """Peaks per GPU, maximum over ranks; None where nothing measures them."""
    loss: float | None
    """Of the last step, nats per token."""
    message: str
    """What went wrong, or, of a candidate that ran, what looks odd; empty when nothing does."""

    def __post_init__(self) -> None:
        for name in ("tokens_per_second_per_gpu", "mfu", "allocated_gib", "reserved_gib"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ValueError(f"{name} is {value!r}; it must be above 0 and finite, or null")
        if self.outcome == "ok" and self.tokens_per_second_per_gpu is None:
            raise ValueError("outcome is 'ok' without tokens_per_second_per_gpu")
        if self.outcome != "ok" and not self.message:
            raise ValueError(f"outcome is {self.outcome!r} without a message that says why")


@dataclass(frozen=True, kw_only=True)
class TrialReport:
    """All candidates of a trial. ``to_json`` and ``from_json`` are inverse."""

    schema_version: int
    model: ModelShape
    gpus: int
    """That the candidates are laid out for. The trial ran on as many, or, without GPUs, on the CPU
    ranks that there were."""
    complete: bool
    """Whether every candidate that was planned has been tried; the report is written after each."""
    candidates: tuple[TrialCandidate, ...]
    winner: int | None
    """Index of the candidate to train with; None when none succeeded."""
    reason: str
    """Why this one, or why none."""

    def __post_init__(self) -> None:
        if self.gpus < 1:
            raise ValueError(f"gpus is {self.gpus}; it must be at least 1")
        for index, candidate in enumerate(self.candidates):
            if candidate.layout.gpus != self.gpus:
                raise ValueError(
                    f"candidate {index} is laid out for {candidate.layout.gpus} GPUs; the trial "
                    f"ran on {self.gpus}"
                )
        if self.winner is None:
            return
        if not 0 <= self.winner < len(self.candidates):
            raise ValueError(
                f"winner is {self.winner}; allowed are null and the indices of the "
                f"{len(self.candidates)} candidates, from 0"
            )
        if self.candidates[self.winner].outcome != "ok":
            raise ValueError(
                f"winner is {self.winner}, whose outcome is "
                f"{self.candidates[self.winner].outcome!r}; only a candidate that ran can win"
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types."""
        return {key: plain(value) for key, value in asdict(self).items()}

    def to_json(self) -> str:
        """Indented JSON with sorted keys, so that equal reports give equal bytes."""
        return json.dumps(self.to_dict(), indent=2, sort_keys=True, allow_nan=False) + "\n"

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> TrialReport:
        """Read ``value``, a parsed ``trial.json``, strictly; ValueError names the offending key."""
        version = value.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"{TRIAL_FILE} has schema_version {version!r}; this version reads "
                f"{SCHEMA_VERSION}: run the trial again"
            )
        report = read_dataclass(cls, value, TRIAL_FILE)
        assert isinstance(report, cls)
        return report

    @classmethod
    def from_json(cls, text: str) -> TrialReport:
        """Parse ``trial.json``; ValueError when it is not one."""
        value = parse_json(text, what=TRIAL_FILE)
        if not isinstance(value, dict):
            raise ValueError(f"{TRIAL_FILE} must hold one JSON object")
        return cls.from_dict(value)

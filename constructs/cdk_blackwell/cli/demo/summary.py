"""``build/demo/summary.json``: what the demo did, in numbers, for people and for CI."""

from __future__ import annotations

import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cdk_blackwell.cli.demo.training import Attempt


@dataclass(kw_only=True)
class Summary:
    """Filled as the demo goes; written at its end, also when it fails half-way."""

    completed: bool = False
    error: str | None = None
    stacks: list[str] = field(default_factory=list)
    resource_count: int = 0
    resources: dict[str, dict[str, int]] = field(default_factory=dict)
    """Per stack: resource type -> count."""
    model: dict[str, Any] = field(default_factory=dict)
    dataset_tokens: dict[str, int] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    steps: int = 0
    resumed_from_step: int | None = None
    loss: dict[str, dict[str, float]] = field(default_factory=dict)
    """``training`` and ``validation``: first, last (nats per token) and fall (fraction)."""
    tokens_per_second: float | None = None
    """Median over all metric lines, all ranks together, measured on this machine's CPUs."""
    controller_answer: dict[str, Any] = field(default_factory=dict)
    s3_keys: list[str] = field(default_factory=list)
    generated_text: str = ""
    retained_then_removed: list[str] = field(default_factory=list)
    left_running: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=lambda: describe_machine())
    requests: dict[str, Any] = field(default_factory=dict)
    """Job name -> CreateTrainingJob request exactly as the emulated SageMaker received it."""

    def take_attempts(self, attempts: list[Attempt]) -> None:
        """Copy what the attempts told."""
        self.attempts = [
            {
                "job_name": attempt.name,
                "status": attempt.status,
                "secondary_status": attempt.secondary_status,
                "failure_reason": attempt.failure_reason or None,
                "first_step": next((m["step"] for m in attempt.metrics), None),
                "last_step": attempt.step,
                "resumed_from_step": attempt.resumed_from_step,
            }
            for attempt in attempts
        ]
        lines = [line for attempt in attempts for line in attempt.metrics]
        self.steps = max((int(line["step"]) for line in lines), default=0)
        self.resumed_from_step = next(
            (a.resumed_from_step for a in attempts if a.resumed_from_step is not None), None
        )
        self.loss = {
            name: summarise(values)
            for name, key in (("training", "loss"), ("validation", "validation_loss"))
            if (values := [line[key] for line in lines if line.get(key) is not None])
        }
        rates = [line["tokens_per_second"] for line in lines if line.get("tokens_per_second")]
        self.tokens_per_second = round(statistics.median(rates), 1) if rates else None

    def to_json(self) -> str:
        """The file's text."""
        return json.dumps(asdict(self), indent=2)

    def write(self, path: Path) -> None:
        """Write the file whole or not at all."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(".tmp")
        draft.write_text(f"{self.to_json()}\n")
        draft.replace(path)


def summarise(values: list[float]) -> dict[str, float]:
    """First, last and the fall as a fraction of the first."""
    first, last = values[0], values[-1]
    return {"first": first, "last": last, "fall": round(1 - last / first, 4)}


def describe_machine() -> dict[str, Any]:
    """What the figures were measured on."""
    packages = ("aws-cdk-lib", "moto", "torch", "transformers")
    return {
        "cpus": os.cpu_count(),
        "architecture": platform.machine(),
        "python": platform.python_version(),
        "packages": {name: version(name) for name in packages},
    }

"""``--verify``: the trainer's own model under PyTorch's memory tracker, beside the prediction."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from cdk_blackwell.bundle import bundle_source
from cdk_blackwell.cli.errors import CheckFailedError, CommandError
from cdk_blackwell.cli.plan.child import ChildFailedError, ask_child
from cdk_blackwell.planning.contracts import EXIT_BAD_INPUT
from cdk_blackwell.planning.plan import Plan
from cdk_blackwell.planning.predictions import predict_memory

ORACLE_MODULE: Final = "trainer.oracle"
PACKAGE_ROOT: Final = Path(__file__).resolve().parents[3]
"""The folder that holds ``cdk_blackwell``."""


@dataclass(frozen=True, kw_only=True)
class Verification:
    """What was predicted and what the tracker counted, for the same kernels."""

    predicted_gib: float
    """Peak of live tensors, for plain operations: what the tracker can run."""
    measured_gib: float
    seconds: float
    """How long the tracker ran."""
    method: str

    @property
    def difference(self) -> float:
        """Prediction over measurement, minus one."""
        return self.predicted_gib / self.measured_gib - 1

    def to_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {**asdict(self), "difference": self.difference}


def check_verifiable() -> None:
    """Refuse, before anything is computed, where torch is missing."""
    if importlib.util.find_spec("torch") is None:
        raise CommandError("--verify needs torch: pip install 'cdk-blackwell[train]'")
    oracle = bundle_source().joinpath(*ORACLE_MODULE.split(".")).with_suffix(".py")
    if not oracle.is_file():
        raise CommandError(f"--verify needs {oracle}, which is missing: reinstall cdk-blackwell")


def verify_plan(plan: Plan, *, console: Console) -> Verification:
    """Run the plan's training step on fake tensors.

    CommandError when such a plan cannot be run so, CheckFailedError when running it fails.
    """
    search_path = [str(bundle_source()), str(PACKAGE_ROOT), os.environ.get("PYTHONPATH", "")]
    try:
        answer = ask_child(
            [sys.executable, "-m", ORACLE_MODULE],
            _question(plan),
            environment={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search_path))},
            title="memory tracker",
            console=console,
        )
    except ChildFailedError as error:
        if error.exit_code == EXIT_BAD_INPUT:
            raise CommandError(f"--verify cannot check this plan: {error}") from error
        raise CheckFailedError(f"--verify: the memory tracker failed: {error}") from error
    return _verification(plan, answer)


def _question(plan: Plan) -> dict[str, Any]:
    """The same objects as in ``plan --json``, so that the oracle reads them as the trainer does."""
    found = plan.to_dict()
    return {key: found[key] for key in ("model", "recipe", "layout")}


def _verification(plan: Plan, answer: dict[str, Any]) -> Verification:
    measured, seconds = answer.get("allocated_gib"), answer.get("seconds")
    if not isinstance(measured, (int, float)) or not measured > 0:
        raise CheckFailedError(f"--verify: the memory tracker counted {measured!r} GiB")
    plain = predict_memory(plan.model, plan.layout, replace(plan.recipe, compile=False))
    return Verification(
        predicted_gib=plain.allocated_gib,
        measured_gib=float(measured),
        seconds=float(seconds) if isinstance(seconds, (int, float)) else 0.0,
        method=str(answer.get("method", ""))
        + ("; so both numbers are for plain operations" if plan.recipe.compile else ""),
    )

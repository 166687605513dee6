"""From options to a screen, or to one JSON object; the exit code follows the planner's verdict."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from rich.console import Console

from cdk_blackwell.cli.errors import CommandError, RefusedError
from cdk_blackwell.cli.plan.arguments import (
    HOW_TO_NAME_A_MODEL,
    find_model,
    find_trial,
    planner_arguments,
)
from cdk_blackwell.cli.plan.charts.save import check_chart_file
from cdk_blackwell.cli.plan.details import print_details
from cdk_blackwell.cli.plan.explain import print_explanations
from cdk_blackwell.cli.plan.flags import in_flags
from cdk_blackwell.cli.plan.models import model_rows, print_models
from cdk_blackwell.cli.plan.options import PlanOptions
from cdk_blackwell.cli.plan.screen import print_plan, print_refusal, print_verification
from cdk_blackwell.cli.plan.section import WIDTH
from cdk_blackwell.cli.plan.verify import Verification, check_verifiable, verify_plan
from cdk_blackwell.planning.errors import DoesNotFitError, PlanError
from cdk_blackwell.planning.plan import Plan, make_plan


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What the planner said: a plan, a refusal, or a refusal with the plan that it refuses."""

    plan: Plan | None
    refusal: DoesNotFitError | None
    notes: tuple[str, ...]
    """Warnings from reading the model."""


def run_plan(options: PlanOptions) -> None:
    """Everything that ``cdk-blackwell plan`` does."""
    console = Console(highlight=False, soft_wrap=False)
    console.width = WIDTH  # bars and rules are drawn for it; a narrower terminal wraps lines
    if options.list_models:
        if options.as_json:
            json.dump(model_rows(), sys.stdout, indent=2)
            sys.stdout.write("\n")
        else:
            print_models(console)
        return
    if options.model is None:
        if not options.as_json:
            print_models(console)
        raise CommandError(HOW_TO_NAME_A_MODEL)
    if options.chart is not None:
        check_chart_file(options.chart)
    if options.verify:
        check_verifiable()
    arguments, notes = _arguments(options, options.model)
    outcome = _ask(arguments, notes)
    if not options.as_json:
        _show(console, outcome, options)
    verification = None
    if options.verify and outcome.plan is not None:
        verification = verify_plan(outcome.plan, console=Console(stderr=True, highlight=False))
        if not options.as_json:
            print_verification(console, outcome.plan, verification)
    if options.chart is not None and outcome.plan is not None:
        _draw(outcome.plan, arguments, options)
    if options.as_json:
        json.dump(_object(outcome, verification), sys.stdout, indent=2)
        sys.stdout.write("\n")
    if outcome.refusal is not None:
        raise RefusedError(in_flags(str(outcome.refusal)))


def _arguments(options: PlanOptions, model_name: str) -> tuple[dict[str, Any], tuple[str, ...]]:
    model, notes = find_model(model_name)
    arguments = planner_arguments(options, model)
    if options.measured is not None:
        arguments["measured"] = find_trial(options.measured)
    return arguments, notes


def _ask(arguments: dict[str, Any], notes: tuple[str, ...]) -> Outcome:
    try:
        return Outcome(plan=make_plan(**arguments), refusal=None, notes=notes)
    except DoesNotFitError as error:
        return Outcome(plan=error.plan, refusal=error, notes=notes)
    except PlanError as error:
        raise CommandError(in_flags(str(error))) from error


def _show(console: Console, outcome: Outcome, options: PlanOptions) -> None:
    if outcome.plan is not None:
        print_plan(console, outcome.plan, notes=outcome.notes)
        if options.explain:
            print_explanations(console, outcome.plan)
        if options.details:
            print_details(console, outcome.plan)
    if outcome.refusal is not None:
        print_refusal(console, outcome.refusal)


def _draw(plan: Plan, arguments: dict[str, Any], options: PlanOptions) -> None:
    from cdk_blackwell.cli.plan.charts.data import chart_data
    from cdk_blackwell.cli.plan.charts.pictures import draw
    from cdk_blackwell.cli.plan.charts.save import save_chart

    assert options.chart is not None
    with Console(stderr=True, highlight=False).status("drawing"):
        save_chart(draw(chart_data(plan, arguments)), options.chart)
    Console(stderr=True, highlight=False).print(f"chart: {options.chart}", markup=False)


def _object(outcome: Outcome, verification: Verification | None) -> dict[str, Any]:
    """What ``--json`` prints; ``plan.schema.json`` describes it."""
    found: dict[str, Any] = outcome.plan.to_dict() if outcome.plan is not None else {}
    if outcome.plan is not None:
        found["warnings"] = [*outcome.notes, *found["warnings"]]
    refusal = outcome.refusal
    found["refusal"] = refusal and {
        "message": in_flags(str(refusal)),
        "changes": [
            {
                "settings": change.settings,
                "required_gib": change.required_gib,
                "total_usd": change.total_usd,
            }
            for change in refusal.changes
        ],
    }
    found["verification"] = verification and verification.to_dict()
    return found

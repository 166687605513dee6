"""Direct invocations: start, trial, stop and status, for people, the command line and pipelines."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from cdk_blackwell.lifecycle.handler.definition import ControllerAnswer, JobDefinition
from cdk_blackwell.lifecycle.handler.errors import LaunchRefused, LaunchUnknown
from cdk_blackwell.lifecycle.handler.launch import preflight, start_run
from cdk_blackwell.lifecycle.handler.messages import tell_unlaunched, unreadable
from cdk_blackwell.lifecycle.handler.overrides import override
from cdk_blackwell.lifecycle.handler.records import Owner, ordinal
from cdk_blackwell.lifecycle.handler.schedule import KEY_ID, KEY_NAME, KEY_TIME, run_id_of
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.lifecycle.handler.stopping import stop_attempts
from cdk_blackwell.lifecycle.handler.trial import as_trial
from cdk_blackwell.planning.cost import worst_case_usd

LAUNCHES: Final = ("start", "trial")
ACTIONS: Final = (*LAUNCHES, "stop", "status")
log = logging.getLogger(__name__)

KEYS: Final = ("action", "run_id", "overrides", "dry_run")


def invoke(services: Services, event: Mapping[str, Any], requester: str) -> dict[str, Any]:
    """Give a `ControllerAnswer` as JSON.

    What is refused is answered with state ``refused`` and a message, never raised.
    """
    try:
        answer = _act(services, event, requester)
    except (LaunchRefused, LaunchUnknown, ValueError) as error:
        run_id = event.get("run_id")
        answer = ControllerAnswer(
            run_id=run_id if isinstance(run_id, str) else None,
            state="refused",
            message=str(error),
        )
    return answer.to_dict()


def start_scheduled(services: Services, event: Mapping[str, Any]) -> dict[str, Any]:
    """Start the run that is due by the clock.

    Nobody reads the answer of a rule's invocation, so what is refused is told to people.
    """
    run_id = run_id_of(str(event[KEY_NAME]), str(event[KEY_TIME]))
    request = {"action": "start", "run_id": run_id}
    answer = invoke(services, request, f"schedule-{event[KEY_ID]}")
    log.info("scheduled run %s: %s", run_id, answer["message"])
    if answer["state"] == "refused":
        owner = _owner_or_none(services)
        if owner is not None:
            job = JobDefinition.from_json(owner.definition).job
            tell_unlaunched(services, job, run_id, str(answer["message"]))
    return answer


def _act(services: Services, event: Mapping[str, Any], requester: str) -> ControllerAnswer:
    _check(event)
    owner = _owner(services)
    run_id: str | None = event.get("run_id")
    action, dry_run = event["action"], bool(event.get("dry_run"))
    if action in LAUNCHES:
        definition = JobDefinition.from_json(owner.definition)
        if event.get("overrides"):
            definition = override(definition, event["overrides"], str(run_id))
        if action == "trial":
            definition = as_trial(definition)
        owner = replace(owner, definition=json.dumps(definition.to_dict()))
        return _start(services, owner, str(run_id), dry_run, requester)
    wanted = run_id if run_id is not None else owner.run_id
    if wanted is None:
        return ControllerAnswer(
            run_id=None, state="none", message="No run was ever launched from this stack."
        )
    if action == "stop":
        return _stop(services, owner, wanted, dry_run)
    return _status(services, owner, wanted)


def _check(event: Mapping[str, Any]) -> None:
    action = event.get("action")
    unknown = sorted(set(event) - set(KEYS))
    if unknown:
        raise ValueError(f"unknown key {unknown[0]!r}; allowed are {', '.join(KEYS)}")
    if action not in ACTIONS:
        raise ValueError(f"action is {action!r}; allowed are {', '.join(ACTIONS)}")
    overrides = event.get("overrides")
    if overrides is not None and not isinstance(overrides, Mapping):
        raise ValueError(
            f"overrides is {overrides!r}; an object of names and values is expected, for example "
            '{"recipe.micro_batch_size": 2}'
        )
    if overrides and action not in LAUNCHES:
        raise ValueError(
            f"overrides are not allowed with action {action!r}, only with {' and '.join(LAUNCHES)}"
        )
    run_id = event.get("run_id")
    if action in LAUNCHES and run_id is None:
        raise ValueError(f"{action} needs a run_id, for example 2027-01-15-a")
    if run_id is not None and not isinstance(run_id, str):
        raise ValueError(f"run_id is {run_id!r}; a text is expected")
    if not isinstance(event.get("dry_run", False), bool):
        raise ValueError(f"dry_run is {event['dry_run']!r}; true or false is expected")


def _owner(services: Services) -> Owner:
    owner = _owner_or_none(services)
    if owner is None:
        raise LaunchRefused(
            "this controller has no job: its stack is not deployed, or being deleted"
        )
    return owner


def _owner_or_none(services: Services) -> Owner | None:
    for owner in services.store.owners():
        if owner.desired != "deleted" and owner.definition:
            return owner
    return None


def _start(
    services: Services, owner: Owner, run_id: str, dry_run: bool, requester: str
) -> ControllerAnswer:
    definition = JobDefinition.from_json(owner.definition)
    cost = cost_of(definition)
    if dry_run:
        request = preflight(services, owner, run_id)
        if services.store.run(owner.owner, run_id) is not None:
            raise LaunchRefused(f"run_id already used: {run_id!r} was launched before")
        return ControllerAnswer(
            run_id=run_id,
            state="dry_run",
            message="Nothing was launched; this request would be sent.",
            job_name=request["TrainingJobName"],
            request=request,
            cost=cost,
        )
    launched = start_run(services, owner, run_id, requester)
    if launched.alive:
        state, message = "starting", f"SageMaker accepted {launched.job_name}."
    else:
        state, message = "stopping", "A stop came in between; the job was stopped at once."
    return ControllerAnswer(
        run_id=run_id,
        state=state,
        message=message,
        job_name=launched.job_name,
        request=launched.request,
        cost=cost,
    )


def _stop(services: Services, owner: Owner, run_id: str, dry_run: bool) -> ControllerAnswer:
    attempts = services.store.attempts(owner.owner, run_id)
    if not attempts:
        raise LaunchRefused(f"run {run_id!r} was never launched from this stack")
    name = attempts[-1].job_name
    if dry_run:
        state, message = "dry_run", f"{name} would be asked to stop."
        return ControllerAnswer(run_id=run_id, state=state, message=message, job_name=name)
    services.store.stop_run(owner.owner, run_id)
    # Read again: an attempt may have been claimed before the stop was written.
    alive = stop_attempts(services, services.store.attempts(owner.owner, run_id))
    if alive:
        state = "stopping"
        message = f"{', '.join(alive)} was asked to stop; it saves and uploads before it ends."
    else:
        state, message = "stopped", "No job of this run is alive."
    return ControllerAnswer(run_id=run_id, state=state, message=message, job_name=name)


def _status(services: Services, owner: Owner, run_id: str) -> ControllerAnswer:
    run = services.store.run(owner.owner, run_id)
    attempts = services.store.attempts(owner.owner, run_id)
    if run is None or not attempts:
        return ControllerAnswer(
            run_id=run_id,
            state=run.state if run else "none",
            message=run.message if run else f"run {run_id!r} was never launched from this stack",
        )
    newest = attempts[-1]
    seen = services.jobs.describe(newest.job_name)
    cost = None
    try:
        definition = run.definition
    except ValueError as error:
        words = [f"attempt {newest.attempt}", unreadable(error)]
    else:
        cost = cost_of(definition)
        step = services.storage.last_complete_step(definition, run_id)
        words = [
            f"attempt {ordinal(newest.attempt, definition.maximum_attempts)}",
            f"newest complete checkpoint: step {step}",
        ]
    if seen is not None:
        words.append(f"SageMaker: {seen.status} ({seen.secondary})")
        if seen.reason:
            words.append(seen.reason)
    elif newest.waits:
        words.append(newest.waits)
    if run.message:
        words.append(run.message)
    state: str = run.state
    if state == "running" and not owner.wants(run_id):
        state = "stopped" if seen is None or seen.terminal else "stopping"
    return ControllerAnswer(
        run_id=run_id,
        state=state,
        message="; ".join(words),
        job_name=newest.job_name,
        cost=cost,
    )


def cost_of(definition: JobDefinition) -> dict[str, Any]:
    """What a run costs at most: every attempt to its time limit. USD are None without a price."""
    limits = definition.request["StoppingCondition"]
    resources = definition.request["ResourceConfig"]
    seconds = int(limits["MaxRuntimeInSeconds"])
    attempt = (
        None
        if definition.hourly_price_usd is None
        else worst_case_usd(
            max_runtime_seconds=seconds,
            instance_count=definition.instance_count,
            hourly_price_usd=definition.hourly_price_usd,
            keep_alive_seconds=int(resources.get("KeepAlivePeriodInSeconds", 0)),
        )
    )
    return {
        "hourly_price_usd": definition.hourly_price_usd,
        "instance_count": definition.instance_count,
        "max_runtime_seconds": seconds,
        "maximum_attempts": definition.maximum_attempts,
        "worst_case_usd_per_attempt": attempt,
        "worst_case_usd": None if attempt is None else attempt * definition.maximum_attempts,
    }

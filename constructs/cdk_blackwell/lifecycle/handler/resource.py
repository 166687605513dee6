"""What Create, Update and Delete of the custom resource mean, one repeatable step at a time."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cdk_blackwell.lifecycle.handler.answer import Answer
from cdk_blackwell.lifecycle.handler.definition import (
    PROPERTY_DEFINITION,
    PROPERTY_RUN_ID,
    JobDefinition,
)
from cdk_blackwell.lifecycle.handler.errors import LaunchRefused
from cdk_blackwell.lifecycle.handler.launch import preflight, start_run
from cdk_blackwell.lifecycle.handler.messages import tell
from cdk_blackwell.lifecycle.handler.records import Attempt, Kind, Owner, Transition
from cdk_blackwell.lifecycle.handler.services import Services
from cdk_blackwell.lifecycle.handler.settle import settle
from cdk_blackwell.lifecycle.handler.stopping import stop_attempts
from cdk_blackwell.planning.contracts import stack_tag

log = logging.getLogger(__name__)


def physical_id(stack_id: str, logical_id: str) -> str:
    """Constant for the life of the resource, so that a changed property is always an Update."""
    return f"{stack_tag(stack_id)}-{logical_id}"


@dataclass(frozen=True, kw_only=True)
class Event:
    """A CloudFormation event."""

    kind: str
    """Create, Update or Delete."""
    request_id: str
    stack_id: str
    owner: str
    """Our physical id, whatever CloudFormation believes it to be."""
    definition: str
    run_id: str | None
    old_run_id: str | None
    started: float
    """First invocation, in seconds since the epoch."""

    @classmethod
    def read(cls, event: Mapping[str, Any], started: float) -> Event:
        """Properties arrive as strings; an empty RunId is none."""
        properties = event.get("ResourceProperties", {})
        old = event.get("OldResourceProperties", {})
        return cls(
            kind=event["RequestType"],
            request_id=event["RequestId"],
            stack_id=event["StackId"],
            owner=physical_id(event["StackId"], event["LogicalResourceId"]),
            definition=properties.get(PROPERTY_DEFINITION, ""),
            run_id=properties.get(PROPERTY_RUN_ID) or None,
            old_run_id=old.get(PROPERTY_RUN_ID) or None,
            started=started,
        )


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Not done yet."""

    what: str
    advice: str


def advance(services: Services, event: Event) -> Answer | Waiting:
    """One step towards the answer. LaunchRefused and other exceptions mean FAILED."""
    if event.kind == "Delete":
        return _delete(services, event)
    if not event.definition:
        raise ValueError(f"the custom resource has no property {PROPERTY_DEFINITION!r}")
    _refuse_another_name(services, event, JobDefinition.from_json(event.definition).job)
    if event.kind == "Create":
        services.store.revive(event.owner, request_started=event.started)
    elif event.kind != "Update":
        raise ValueError(f"CloudFormation's RequestType is {event.kind!r}")
    recorded = services.store.record_definition(
        event.owner, stack_id=event.stack_id, definition=event.definition
    )
    owner = services.store.owner(event.owner)
    if not recorded or owner is None:
        raise LaunchRefused("the job was deleted from its stack while this event was on its way")
    kind = _decide(services, event, owner)
    if event.run_id is not None and kind in ("create", "launch"):
        return _launch(services, event, owner)
    if kind in ("remove", "roll_back"):
        return _stop_old(services, event, owner)
    return _done(event, "The definition is recorded; nothing was launched or stopped.")


def _refuse_another_name(services: Services, event: Event, job: str) -> None:
    """The rights and rules of a deploy are for training jobs of its ``job_name`` alone."""
    attempts, _ = services.store.readable_attempts(event.owner)
    for attempt in attempts:
        if not attempt.settled and attempt.job != job:
            raise LaunchRefused(
                f"job_name changes from {attempt.job!r} to {job!r} while {attempt.job_name} is not "
                "at its end, and nothing could stop it afterwards. Stop run "
                f"{attempt.run_id!r} first, then deploy again"
            )


def _decide(services: Services, event: Event, owner: Owner) -> Kind | None:
    """What a changed RunId asks for; decided once per event, None when it did not change."""
    if event.kind == "Update" and event.run_id == event.old_run_id:
        return None
    last = owner.transition
    if last is not None and last.by == event.request_id:
        return last.kind
    kind = _kind(services, event, last)
    services.store.record_transition(
        event.owner,
        Transition(by=event.request_id, before=event.old_run_id, after=event.run_id, kind=kind),
    )
    return kind


def _kind(services: Services, event: Event, last: Transition | None) -> Kind:
    if event.kind == "Create":
        return "create"
    # CloudFormation does not say that it rolls back, but then it undoes exactly the last update,
    # repeats that, or undoes an update that never reached us. It never undoes a rollback.
    undone = last is not None and (last.after, last.before) == (event.old_run_id, event.run_id)
    if undone and last is not None and last.kind in ("launch", "remove"):
        return "roll_back"
    if event.run_id is None:
        return "remove"
    if last is None:
        return "launch"
    run = services.store.run(event.owner, event.run_id)
    used = run is not None and run.state != "refused"
    return "roll_back" if used and last.after == event.run_id else "launch"


def _launch(services: Services, event: Event, owner: Owner) -> Answer | Waiting:
    assert event.run_id is not None
    if not owner.wants(event.run_id):
        _refuse_used(services, event)
        # Everything that can be refused is refused before the old run is touched.
        preflight(services, owner, event.run_id)
        alive = _stop_others(services, owner, event.run_id)
        if alive:
            return Waiting(
                what=f"{', '.join(alive)} to stop before run {event.run_id!r} is launched",
                advice="It was asked to stop; deploy again with a new run_id when it has.",
            )
    launched = start_run(services, owner, event.run_id, event.request_id)
    if not launched.alive:
        raise LaunchRefused(
            f"run {event.run_id!r} was stopped while it was being launched; "
            f"{launched.job_name} is stopping or has stopped"
        )
    return _done(event, f"SageMaker accepted {launched.job_name}.", {"JobName": launched.job_name})


def _refuse_used(services: Services, event: Event) -> None:
    assert event.run_id is not None
    run = services.store.run(event.owner, event.run_id)
    if run is None or run.state == "refused":
        return
    attempts = services.store.attempts(event.owner, event.run_id)
    if not any(attempt.requester == event.request_id for attempt in attempts):
        raise LaunchRefused(
            f"run_id already used: {event.run_id!r} was launched before and is "
            f"{run.state}. Choose another run_id."
        )


def _stop_old(services: Services, event: Event, owner: Owner) -> Answer:
    """The RunId was removed, or a rollback went back to an earlier one: stop, never relaunch.

    A run that was started by hand, not by RunId, is none of the template's business.
    """
    sentences = []
    old = event.old_run_id
    stopped = False
    alive: tuple[str, ...] = ()
    attempts: tuple[Attempt, ...] = ()
    if old is not None:
        stopped = services.store.stop_run(event.owner, old)
        attempts = services.store.attempts(event.owner, old)
        alive = stop_attempts(services, attempts)
        if stopped:
            sentences.append(f"Run {old!r} is stopped; its checkpoints stay in S3.")
        if alive:
            sentences.append(f"{', '.join(alive)} was asked to stop.")
    if event.run_id is not None and not owner.wants(event.run_id):
        sentences.append(
            f"Run {event.run_id!r} is not launched again; choose a new run_id to launch one."
        )
    text = " ".join(sentences) or "Nothing had to be stopped."
    if attempts and (stopped or alive):
        tell(services, attempts[-1], "stopped by a deploy", text)
    return _done(event, text)


def _stop_others(services: Services, owner: Owner, keep: str) -> tuple[str, ...]:
    if owner.run_id is not None and owner.run_id != keep:
        services.store.stop_run(owner.owner, owner.run_id)
    others = [each for each in services.store.attempts(owner.owner) if each.run_id != keep]
    return stop_attempts(services, others)


def _delete(services: Services, event: Event) -> Answer | Waiting:
    # The tombstone first: from here on nobody can win a claim.
    services.store.bury(event.owner, stack_id=event.stack_id)
    attempts, unreadable = services.store.readable_attempts(event.owner)
    alive = stop_attempts(services, attempts)
    if unreadable:
        # What can be read is stopped by now; this one may be alive too, so it is not passed over.
        raise unreadable[0]
    if alive:
        return Waiting(
            what=f"the training job {', '.join(alive)} to stop",
            advice="Stop it in SageMaker if it still runs, then delete the stack again: it costs "
            "money until it has stopped.",
        )
    _close_books(services, attempts)
    definitions = _definitions(services, event, attempts)
    job_names = sorted({attempt.job_name for attempt in attempts})
    interfaces = services.network.interfaces(definitions, event.stack_id, job_names)
    if interfaces:
        names = ", ".join(job_names) or "no job"
        return Waiting(
            what=f"the network interfaces {', '.join(interfaces)} of {names} to go",
            advice="Delete the stack again later; no job is running.",
        )
    return _done(event, "No job of this resource is running.")


def _definitions(
    services: Services, event: Event, attempts: Sequence[Attempt]
) -> list[JobDefinition]:
    definitions = []
    for run_id in sorted({attempt.run_id for attempt in attempts}):
        run = services.store.run(event.owner, run_id)
        if run is None:
            continue
        try:
            definitions.append(run.definition)
        except ValueError:
            # Frozen by another version of this library. Its job has ended; at worst EC2 refuses
            # to delete a security group until the interfaces are gone.
            log.exception("the definition of run %s cannot be read", run_id)
    return definitions


def _close_books(services: Services, attempts: Sequence[Attempt]) -> None:
    """Record and tell the end of what was stopped: its event may come after the rule is gone."""
    for attempt in attempts:
        if attempt.settled:
            continue
        try:
            seen = services.jobs.describe(attempt.job_name)
            if seen is not None:
                settle(services, attempt, seen, "delete")
        except Exception:
            # The job has ended; a message less must not keep the stack from going.
            log.exception("the end of %s could not be recorded", attempt.job_name)


def _done(event: Event, message: str, data: dict[str, str] | None = None) -> Answer:
    attributes = {"RunId": event.run_id or "", "JobName": "", "Message": message}
    return Answer(status="SUCCESS", reason=message, data={**attributes, **(data or {})})

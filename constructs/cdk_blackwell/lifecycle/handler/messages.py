"""One message about a run: what happened, why, what was spent, where to look.

All that the controller tells goes through here, so that every message and every event says as much.
"""

from __future__ import annotations

from typing import Any

from cdk_blackwell.lifecycle.handler.budget import billed, spent_usd
from cdk_blackwell.lifecycle.handler.definition import JobDefinition
from cdk_blackwell.lifecycle.handler.happenings import DETAIL, Happening
from cdk_blackwell.lifecycle.handler.records import Attempt, ordinal
from cdk_blackwell.lifecycle.handler.request import run_location
from cdk_blackwell.lifecycle.handler.services import Services


def tell(
    services: Services, attempt: Attempt, what: Happening, text: str, *, announce: bool = True
) -> bool:
    """Tell of ``attempt``, as it was read last; whether the topic took the message.

    Of one that has not ended, the end of the one before it is told as well. ``announce``: tell
    other systems too.
    """
    definition, unread = _definition(services, attempt)
    ended = [each for each in _up_to(services, attempt) if each.state == "ended"]
    last = ended[-1] if ended else None
    facts = {"training job": attempt.job_name}
    if last is not None and last.attempt < attempt.attempt:
        facts[f"attempt {last.attempt} ended"] = last.text
    detail: dict[str, Any] = {
        "job": attempt.job,
        "run_id": attempt.run_id,
        "attempt": attempt.attempt,
        "training_job": attempt.job_name,
        "what": what,
        "why": text,
        "reason": last.reason if last else "",
        "spent_usd": None,
        "max_cost_usd": None,
        "last_complete_step": last.last_complete_step if last else 0,
        "files": "",
        "console": console_link(attempt),
    }
    if last is not None:
        facts["SageMaker's reason"] = last.reason
    if definition is None:
        facts["definition"] = unread
    else:
        spent = _spent(definition, ended)
        files = run_location(definition, attempt.run_id).uri
        detail |= {"spent_usd": spent, "max_cost_usd": definition.max_cost_usd, "files": files}
        facts["attempt"] = ordinal(attempt.attempt, definition.maximum_attempts)
        if last is not None:
            facts["newest complete checkpoint"] = f"step {last.last_complete_step}"
        facts["spent on the run"] = _money(definition, spent)
        facts["files"] = files
    facts["console"] = detail["console"]
    took = services.notifier.tell(
        what=what, job=attempt.job, run_id=attempt.run_id, text=text, facts=facts
    )
    if announce:
        services.notifier.announce(what, detail)
    return took


def tell_unlaunched(services: Services, job: str, run_id: str, text: str) -> None:
    """Tell of a run that never began, where nobody waits for the answer."""
    what: Happening = "could not be launched"
    services.notifier.tell(what=what, job=job, run_id=run_id, text=text)
    known = {"job": job, "run_id": run_id, "what": what, "why": text}
    unknown = {"attempt": None, "spent_usd": None, "max_cost_usd": None, "last_complete_step": 0}
    services.notifier.announce(what, {**dict.fromkeys(DETAIL, ""), **unknown, **known})


def unreadable(error: ValueError) -> str:
    """What to tell of a frozen definition that this version cannot read."""
    return (
        f"The run's definition was frozen by another version of cdk-blackwell, which this one "
        f"cannot read ({error})."
    )


def console_link(attempt: Attempt) -> str:
    """Page of the attempt's training job in the AWS console, by the partition of its stack."""
    _, partition, _, region, *_ = attempt.stack_id.split(":")
    domain = {"aws-cn": "amazonaws.cn", "aws-us-gov": "amazonaws-us-gov.com"}.get(
        partition, "aws.amazon.com"
    )
    return (
        f"https://{region}.console.{domain}/sagemaker/home?region={region}#/jobs/{attempt.job_name}"
    )


def _up_to(services: Services, attempt: Attempt) -> list[Attempt]:
    known = services.store.attempts(attempt.owner, attempt.run_id)
    earlier = [each for each in known if each.attempt < attempt.attempt]
    return [*sorted(earlier, key=lambda each: each.attempt), attempt]


def _definition(services: Services, attempt: Attempt) -> tuple[JobDefinition | None, str]:
    run = services.store.run(attempt.owner, attempt.run_id)
    if run is None:
        return None, ""
    try:
        return run.definition, ""
    except ValueError as error:
        return None, unreadable(error)


def _spent(definition: JobDefinition, ended: list[Attempt]) -> float | None:
    """By what SageMaker billed; the most possible where it did not say."""
    return spent_usd(definition, [billed(definition, each) for each in ended])


def _money(definition: JobDefinition, spent: float | None) -> str:
    if spent is None:
        return ""
    ceiling = definition.max_cost_usd
    return f"{spent:,.2f} USD" + ("" if ceiling is None else f" of at most {ceiling:,.2f} USD")

"""The page on a run's life, made from the controller's own table.

``python -m cdk_blackwell.lifecycle.documentation > docs/life-of-a-run.md``; a test compares them.
"""

from __future__ import annotations

from typing import Final

from cdk_blackwell.lifecycle.handler.budget import MINIMUM_ATTEMPT_SECONDS
from cdk_blackwell.lifecycle.handler.launch import PENDING_SECONDS
from cdk_blackwell.lifecycle.handler.outcomes import CONSEQUENCES, RULES, Rule
from cdk_blackwell.lifecycle.handler.resume import (
    CAPACITY_PAUSE_SECONDS,
    MAXIMUM_USELESS_ATTEMPTS,
)
from cdk_blackwell.lifecycle.handler.training_plan import ENDED_BEFORE_SECONDS, STARTING_SECONDS
from cdk_blackwell.planning.contracts import TRIAL_MAXIMUM_SECONDS

_ACTIONS: Final = {
    "resubmit": "next attempt",
    "finish": "end",
    "stop": "end, for a person to look at",
}


def document() -> str:
    """The whole page, as Markdown."""
    rows = [
        "| status | secondary status | failure class or reason | cause |",
        "|---|---|---|---|",
        *(_row(rule) for rule in RULES),
    ]
    consequences = [
        "| cause | what follows | state of a run that ends | what people are told |",
        "|---|---|---|---|",
        *(
            f"| {cause} | {_ACTIONS[each.action]} | {each.state} | {each.text} |"
            for cause, each in CONSEQUENCES.items()
        ),
    ]
    return "\n".join([_HEAD, *rows, _BETWEEN, *consequences, _tail()])


def _pauses() -> str:
    minutes = [f"{seconds / 60:.0f}" for seconds in CAPACITY_PAUSE_SECONDS]
    return f"{', '.join(minutes[:-1])} and {minutes[-1]}"


def _row(rule: Rule) -> str:
    # A bar would end the cell.
    reason = "" if rule.reason is None else f"`{rule.reason}`".replace("|", "\\|")
    failure = "" if rule.failure is None else f"class={rule.failure}"
    why = " and ".join(filter(None, (failure, reason)))
    return f"| {rule.status} | {rule.secondary or ''} | {why} | {rule.cause} |"


_HEAD: Final = """# Life of a run

![A run is claimed, launched, trained, judged, and resumed or ended](life-of-a-run.svg)

A run begins when a new `run_id` is deployed or started, and lives through one or more attempts,
each a SageMaker training job. When an attempt ends, the controller looks it up in this table, from
the top; the first row that matches counts. Classes are what the trainer itself wrote into its
failure text; reasons are regular expressions searched for in SageMaker's words. SageMaker does not
document those words: they are the ones in common use.

This page is generated: `python -m cdk_blackwell.lifecycle.documentation > docs/life-of-a-run.md`.

## Why did it end?
"""

_BETWEEN: Final = """
A run that was stopped, replaced or deleted before its job ended has the cause stopped_by_us,
whatever the job says, unless the job completed.

An attempt may have had less run time than `max_runtime`, because money or a training plan left no
more. Then MaxRuntimeExceeded means money_used_up or plan_ended.

## What follows?
"""


def _tail() -> str:
    return f"""
## Bounds

Whatever the table says, there is no next attempt when

* the last {MAXIMUM_USELESS_ATTEMPTS} attempts that reached training left no new complete
  checkpoint,
* `max_attempts` are used (those that got no instances do not count), or the run is a trial, which
  has one attempt,
* a GPU ran out of memory for the second time,
* attempts in a row got no capacity for longer than `MaxPendingTimeInSeconds` (or
  {PENDING_SECONDS / 3600:g} hours, where the request has none), or
* what is left of `max_cost_usd` pays for less than {MINIMUM_ATTEMPT_SECONDS // 60} minutes of
  training with its stop and upload.

After an attempt that got no capacity the next one waits {_pauses()} minutes, longer each time in a
row. Where SageMaker refuses a next attempt for a reason that passes, such as a quota that a job
which just ended still holds, it is tried again every five minutes, within the same bound.

What earlier attempts were billed (`BillableTimeInSeconds`) is taken from `max_cost_usd`, and the
next attempt's `MaxRuntimeInSeconds` is cut to what the rest pays for at the worst. Under a training
plan the marginal price is zero and the plan's fee is shown instead; there the next attempt's run
time is cut to the plan's: SageMaker ends what runs {ENDED_BEFORE_SECONDS // 60} minutes before the
plan does, so an attempt stops of itself before that, with time for its start
({STARTING_SECONDS // 60} minutes) and its upload. A launch that leaves less than
{MINIMUM_ATTEMPT_SECONDS // 60} minutes of training is refused. A block of the plan that leaves
less than that is passed over for the next one, for which the job waits.

A trial (`cdk-blackwell trial`) is a run of at most {TRIAL_MAXIMUM_SECONDS // 60} minutes in which
the trainer tries candidates instead of training. Its id is used up like any other.
"""


if __name__ == "__main__":
    print(document(), end="")

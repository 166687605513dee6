"""What follows from the end of an attempt, as a table."""

from __future__ import annotations

import pytest

from cdk_blackwell.lifecycle.handler.jobs import Observation
from cdk_blackwell.lifecycle.handler.outcomes import CONSEQUENCES, RULES
from cdk_blackwell.lifecycle.handler.records import Cause
from cdk_blackwell.lifecycle.handler.resume import (
    Decision,
    decide,
    decide_unreadable,
    find_cause,
    useless_attempts,
)
from cdk_blackwell.planning.contracts import FAILURE_CLASSES, NO_SMALLER_BATCH, Failure
from tests.lifecycle.world import World, definition


def seen(
    status: str, secondary: str = "", reason: str = "", *, trained: bool = True
) -> Observation:
    return Observation(
        job_name="job",
        status=status,
        secondary=secondary or status,
        reason=reason,
        trained=trained,
    )


def after(
    what: Observation,
    *,
    wanted: bool = True,
    attempt: int = 1,
    maximum_attempts: int = 5,
    steps: tuple[int, ...] = (100,),
    affordable_seconds: float = 86_400,
    causes: tuple[Cause, ...] = (),
    uncounted: int = 0,
    trial: bool = False,
) -> Decision:
    return decide(
        what,
        wanted=wanted,
        attempt=attempt,
        maximum_attempts=maximum_attempts,
        steps=steps,
        affordable_seconds=affordable_seconds,
        causes=causes,
        uncounted=uncounted,
        trial=trial,
    )


@pytest.mark.parametrize(
    ("what", "cause", "action", "state"),
    [
        (seen("Completed"), "completed", "finish", "completed"),
        (seen("Stopped"), "stopped_by_a_person", "finish", "stopped"),
        (seen("Stopped", "MaxRuntimeExceeded"), "run_time_used_up", "stop", "stopped"),
        (seen("Stopped", "MaxWaitTimeExceeded"), "waiting_time_used_up", "stop", "stopped"),
        (
            seen("Stopped", reason="Exceeded MaxPendingTimeInSeconds"),
            "pending_too_long",
            "stop",
            "stopped",
        ),
        (seen("Stopped", reason="The training plan has expired"), "plan_ended", "stop", "stopped"),
        (seen("Failed", reason="CapacityError: none left"), "capacity", "resubmit", "failed"),
        (
            seen("Failed", reason="InsufficientCapacityError: none"),
            "capacity",
            "resubmit",
            "failed",
        ),
        (
            seen("Failed", reason="InternalServerError: We encountered an internal error."),
            "internal",
            "resubmit",
            "failed",
        ),
        (
            seen("Failed", reason="AlgorithmError: , exit code: 137"),
            "infrastructure",
            "resubmit",
            "failed",
        ),
        (seen("Failed", reason="AlgorithmError: , exit code: 1"), "user", "stop", "failed"),
        (seen("Failed", reason="ClientError: no such image"), "user", "stop", "failed"),
        (seen("Failed"), "unknown", "stop", "failed"),
        (seen("Deleting"), "deleted", "finish", "stopped"),
    ],
)
def test_sagemakers_own_words(what: Observation, cause: str, action: str, state: str) -> None:
    decision = after(what)
    assert (decision.cause, decision.action, decision.state) == (cause, action, state)


@pytest.mark.parametrize(
    ("kind", "action"),
    [
        ("infrastructure", "resubmit"),
        ("capacity", "resubmit"),
        ("out_of_memory", "resubmit"),
        ("data", "stop"),
        ("user", "stop"),
    ],
)
def test_the_trainers_failure_class_counts_more_than_sagemakers_prefix(
    kind: str, action: str
) -> None:
    text = Failure(kind=kind, message="x", step=7, rank=3).render()  # type: ignore[arg-type]
    decision = after(seen("Failed", reason=f"AlgorithmError: {text}, exit code: 1"))
    assert (decision.cause, decision.action) == (kind, action)


def test_an_internal_fault_is_told_as_whose_it_is() -> None:
    text = Failure(kind="internal", message="rank 3 ended without a word").render()
    trainers = after(seen("Failed", reason=f"AlgorithmError: {text}, exit code: 1"))
    assert (trainers.cause, trainers.action) == ("trainer_fault", "resubmit")
    assert trainers.text.startswith("The trainer reported an internal fault")
    sagemakers = after(seen("Failed", reason="InternalServerError: We encountered an error."))
    assert (sagemakers.cause, sagemakers.action) == ("internal", "resubmit")
    assert sagemakers.text.startswith("SageMaker had an internal error")


def test_advice_names_the_parameters_of_the_construct() -> None:
    text = after(seen("Failed", reason="InternalServerError"), attempt=5, steps=(1, 2, 3)).text
    assert "Raise max_attempts" in text
    assert "a max_runtime above" in after(seen("Stopped", "MaxRuntimeExceeded")).text


def test_a_used_up_run_time_is_not_called_a_limit_on_cost() -> None:
    text = after(seen("Stopped", "MaxRuntimeExceeded")).text
    assert "cost" not in text
    assert "a limit and no failure" in text


@pytest.mark.parametrize(
    ("steps", "words"), [((300,), "checkpoint (step 300)"), ((), "begins again")]
)
def test_a_resubmission_says_where_it_begins(steps: tuple[int, ...], words: str) -> None:
    assert words in after(seen("Failed", reason="CapacityError"), steps=steps).text


@pytest.mark.parametrize(
    ("reason", "trained", "attempt", "uncounted", "action"),
    [
        ("CapacityError", False, 3, 0, "resubmit"),
        ("CapacityError", True, 3, 0, "stop"),
        ("InternalServerError", False, 3, 0, "stop"),
        ("InternalServerError", True, 5, 3, "resubmit"),
        ("InternalServerError", True, 5, 2, "stop"),
        ("CapacityError", False, 9, 7, "resubmit"),
    ],
)
def test_only_attempts_that_got_instances_are_counted(
    reason: str, trained: bool, attempt: int, uncounted: int, action: str
) -> None:
    what = seen("Failed", reason=reason, trained=trained)
    decision = after(what, attempt=attempt, maximum_attempts=3, steps=(), uncounted=uncounted)
    assert decision.action == action


def test_an_unreadable_definition_ends_what_would_be_resubmitted_and_nothing_else() -> None:
    why = "Its definition cannot be read."
    failed = decide_unreadable(seen("Failed", reason="CapacityError"), wanted=True, why=why)
    assert (failed.cause, failed.action, failed.state) == ("capacity", "stop", "failed")
    assert why in failed.text
    completed = decide_unreadable(seen("Completed"), wanted=True, why=why)
    assert (completed.action, completed.state) == ("finish", "completed")
    stopped = decide_unreadable(seen("Stopped"), wanted=False, why=why)
    assert stopped.cause == "stopped_by_us"


@pytest.mark.parametrize(
    ("statuses", "trained"),
    [
        (["Starting", "Downloading", "Training", "Failed"], True),
        (["Starting", "Pending", "Failed"], False),
        ([], True),
    ],
)
def test_whether_a_job_reached_training_is_in_its_transitions(
    statuses: list[str], trained: bool
) -> None:
    transitions = [{"Status": status} for status in statuses]
    description = {"TrainingJobName": "job", "SecondaryStatusTransitions": transitions}
    assert Observation.read(description).trained is trained


def test_every_failure_class_and_every_cause_has_a_consequence() -> None:
    assert {rule.failure for rule in RULES if rule.failure} == set(FAILURE_CLASSES)
    told_apart_later = {"stopped_by_us", "money_used_up"}
    assert {rule.cause for rule in RULES} | told_apart_later == set(CONSEQUENCES)


@pytest.mark.parametrize("status", ["Failed", "Stopped", "Deleting"])
def test_a_run_that_was_stopped_is_never_resubmitted(status: str) -> None:
    decision = after(seen(status, reason="InternalServerError"), wanted=False)
    assert (decision.cause, decision.action) == ("stopped_by_us", "finish")


def test_a_run_that_completes_while_it_is_stopped_has_completed() -> None:
    assert after(seen("Completed"), wanted=False).state == "completed"


@pytest.mark.parametrize(
    ("steps", "useless"),
    [
        ((), 0),
        ((0,), 1),
        ((100,), 0),
        ((100, 100), 1),
        ((100, 100, 100), 2),
        ((0, 0), 2),
        ((100, 100, 200), 0),
        ((200, 100, 150), 2),
    ],
)
def test_useless_attempts_left_no_newer_complete_checkpoint(
    steps: tuple[int, ...], useless: int
) -> None:
    assert useless_attempts(steps) == useless


def test_two_attempts_in_a_row_without_progress_stop_the_run() -> None:
    failed = seen("Failed", reason="InternalServerError")
    assert after(failed, attempt=2, steps=(100, 100)).action == "resubmit"
    decision = after(failed, attempt=3, steps=(100, 100, 100))
    assert decision.action == "stop"
    assert "still at step 100" in decision.text


def test_the_last_attempt_is_not_resubmitted() -> None:
    failed = seen("Failed", reason="InternalServerError")
    assert after(failed, attempt=4, steps=(1, 2, 3, 4)).action == "resubmit"
    decision = after(failed, attempt=5, steps=(1, 2, 3, 4, 5))
    assert decision.action == "stop"
    assert "All 5 attempts are used" in decision.text


def out_of_memory(message: str) -> Observation:
    text = Failure(kind="out_of_memory", message=message, step=1, rank=0).render()
    return seen("Failed", reason=f"AlgorithmError: {text}, exit code: 1")


def test_out_of_memory_is_tried_again_once_in_the_whole_run() -> None:
    full = out_of_memory("out of memory with 4 sequences: the next start uses 2")
    assert after(full, causes=("infrastructure",)).action == "resubmit"
    again = after(full, attempt=3, steps=(1, 2, 3), causes=("out_of_memory", "infrastructure"))
    assert again.action == "stop"
    assert "for the second time" in again.text
    other = seen("Failed", reason="InternalServerError")
    assert after(other, attempt=2, causes=("out_of_memory",)).action == "resubmit"


def test_out_of_memory_without_a_smaller_batch_is_not_tried_again() -> None:
    decision = after(out_of_memory(f"out of memory with 1 sequence: {NO_SMALLER_BATCH}; use more"))
    assert (decision.cause, decision.action) == ("no_smaller_batch", "stop")
    assert "more GPUs" in decision.text


@pytest.mark.parametrize("reason", ["CapacityError", "InternalServerError: again"])
def test_a_trial_has_one_attempt(reason: str) -> None:
    decision = after(seen("Failed", reason=reason), maximum_attempts=1, trial=True)
    assert decision.action == "stop"
    assert "Start another trial" in decision.text
    assert "max_attempts" not in decision.text


def test_a_job_that_runs_has_no_cause() -> None:
    with pytest.raises(ValueError, match="InProgress"):
        find_cause(seen("InProgress"))


def test_a_run_time_of_minutes_is_worth_an_attempt_of_minutes(world: World) -> None:
    request = definition().request
    limits = {**request["StoppingCondition"], "MaxRuntimeInSeconds": 600}
    short = definition(request={**request, "StoppingCondition": limits}, max_cost_usd=None)
    world.cloudformation("Create", run_id="a", job=short)
    world.fails(world.name("a"), "InternalServerError: We encountered an internal error.", step=10)
    assert world.sagemaker.alive() == [world.name("a", 2)]

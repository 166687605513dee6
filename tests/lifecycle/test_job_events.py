"""Job events: recorded once, resubmitted within bounds, told in words a person can act on."""

from __future__ import annotations

import pytest

from cdk_blackwell.lifecycle.handler.claims import CLAIM_GRACE_SECONDS
from cdk_blackwell.lifecycle.handler.resume import CAPACITY_PAUSE_SECONDS
from cdk_blackwell.planning.contracts import Failure, training_job_name
from tests.lifecycle.fakes import STACK, error
from tests.lifecycle.world import World, definition

INTERNAL = "InternalServerError: We encountered an internal error."


def sweep_for(world: World, seconds: float) -> None:
    """The sweep comes every five minutes for so long."""
    until = world.time.now() + seconds
    while world.time.now() < until:
        world.time.sleep(300)
        world.sweep()


@pytest.fixture
def running(world: World) -> World:
    world.cloudformation("Create", run_id="a")
    return world


def test_a_failed_host_is_resubmitted_and_resumes(running: World) -> None:
    text = Failure(kind="infrastructure", message="rank 1 was killed", step=110, rank=1).render()
    running.fails(running.name("a"), f"AlgorithmError: {text}, exit code: 1", step=100)
    assert running.sagemaker.created == [running.name("a"), running.name("a", 2)]
    request = running.sagemaker.jobs[running.name("a", 2)]["Request"]
    assert request["Environment"]["CDKB_ATTEMPT"] == "2"
    first = running.attempt("a", 1)
    assert first is not None
    assert (first.cause, first.last_complete_step) == ("infrastructure", 100)
    assert first.settled
    assert running.subjects()[1:] == ["pretrain a: resubmitted"]


def test_a_completed_run_is_finished_and_told(running: World) -> None:
    running.progress(200)
    running.deliver(running.job_event(running.sagemaker.end(running.name("a"), "Completed")))
    assert running.run_state("a") == "completed"
    assert not running.owner().wants("a")
    assert running.subjects()[1:] == ["pretrain a: completed"]
    assert "step 200" in running.sns.messages[-1]["Message"]
    assert running.ask("start", "b")["state"] == "starting", "the next run may start"


@pytest.mark.parametrize("kind", ["data", "user"])
def test_what_a_person_must_correct_is_told_and_not_resubmitted(running: World, kind: str) -> None:
    text = Failure(kind=kind, message="details here").render()  # type: ignore[arg-type]
    running.fails(running.name("a"), f"AlgorithmError: {text}")
    assert len(running.sagemaker.created) == 1
    assert running.run_state("a") == "failed"
    assert running.subjects()[1:] == ["pretrain a: failed"]
    assert "details here" in running.sns.messages[-1]["Message"]


def test_out_of_memory_is_resubmitted_once(running: World) -> None:
    text = Failure(kind="out_of_memory", message="the next start uses 2").render()
    running.fails(running.name("a"), f"AlgorithmError: {text}", step=100)
    assert running.sagemaker.created == [running.name("a"), running.name("a", 2)]
    assert "lower limit for its micro-batch" in running.sns.messages[-1]["Message"]
    running.fails(running.name("a", 2), f"AlgorithmError: {text}", step=200)
    assert len(running.sagemaker.created) == 2
    assert running.run_state("a") == "failed"
    assert "for the second time" in running.sns.messages[-1]["Message"]


def test_a_job_stopped_by_a_person_ends_the_run(running: World) -> None:
    running.sagemaker.stop_training_job(TrainingJobName=running.name("a"))
    running.time.sleep(200)
    running.sagemaker.holding()
    running.deliver(running.job_event(running.sagemaker.detail(running.name("a"))))
    assert running.run_state("a") == "stopped"
    assert len(running.sagemaker.created) == 1
    assert "stopped outside this stack" in running.sns.messages[-1]["Message"]


def test_a_duplicate_event_changes_nothing(running: World) -> None:
    event = running.fails(running.name("a"), INTERNAL, step=100)
    told = len(running.sns.messages)
    running.deliver(event)
    running.deliver({**event, "id": "another delivery"})
    assert running.sagemaker.created == [running.name("a"), running.name("a", 2)]
    assert len(running.sns.messages) == told


def test_events_out_of_order_change_nothing(running: World) -> None:
    early = running.job_event(running.sagemaker.detail(running.name("a")))
    running.fails(running.name("a"), INTERNAL, step=100)
    running.deliver(early)
    assert running.sagemaker.alive() == [running.name("a", 2)]
    first = running.attempt("a")
    assert first is not None
    assert first.status == "Failed"


def test_a_late_event_of_the_first_attempt_does_not_touch_the_second(running: World) -> None:
    event = running.fails(running.name("a"), INTERNAL, step=100)
    running.fails(running.name("a", 2), INTERNAL, step=200)
    running.deliver(event)
    assert running.sagemaker.alive() == [running.name("a", 3)]


@pytest.mark.parametrize("status", ["Failed", "Completed", "Stopped"])
def test_an_event_is_not_believed_against_a_job_that_lives(running: World, status: str) -> None:
    """Late by far, from elsewhere or forged: a second job beside a living one costs as much."""
    detail = {**running.sagemaker.detail(running.name("a")), "TrainingJobStatus": status}
    running.deliver(running.job_event({**detail, "FailureReason": INTERNAL}))
    assert running.sagemaker.created == [running.name("a")]
    assert running.run_state("a") == "running"


def test_what_the_describe_did_not_show_yet_the_sweep_finds(running: World) -> None:
    early = running.sagemaker.describe_training_job(TrainingJobName=running.name("a"))
    event = running.job_event(running.sagemaker.end(running.name("a"), "Completed"))
    honest = running.sagemaker.describe_training_job
    running.sagemaker.describe_training_job = lambda **name: early  # type: ignore[method-assign]
    running.deliver(event)
    assert running.run_state("a") == "running"
    running.sagemaker.describe_training_job = honest  # type: ignore[method-assign]
    running.sweep()
    assert running.run_state("a") == "completed"


def test_of_a_job_whose_record_was_deleted_the_event_knows_the_end(running: World) -> None:
    event = running.job_event(running.sagemaker.end(running.name("a"), "Completed"))
    del running.sagemaker.jobs[running.name("a")]
    running.deliver(event)
    assert running.run_state("a") == "completed"


def test_an_event_does_not_end_a_claim_whose_launch_is_under_way(world: World) -> None:
    world.cloudformation("Create")
    world.claim(by="another invocation")
    world.deliver(
        world.job_event({"TrainingJobName": world.name("a"), "TrainingJobStatus": "Failed"})
    )
    claim = world.attempt("a")
    assert claim is not None
    assert claim.state == "claimed"


def test_a_job_of_somebody_else_is_ignored(running: World) -> None:
    calls = len(running.gate.calls)
    running.deliver(running.job_event({"TrainingJobName": "other", "TrainingJobStatus": "Failed"}))
    assert running.gate.calls[calls:] == ["get_item"]


@pytest.mark.parametrize(
    "name",
    [
        training_job_name(job="pretrain-b", stack_id=STACK, run_id="a", attempt=1),
        training_job_name(job="pretrain", stack_id=f"{STACK}1", run_id="a", attempt=1),
        training_job_name(job="pretrain", stack_id=STACK, run_id="a", attempt=2),
        training_job_name(job="pretrain", stack_id=STACK, run_id="a-1", attempt=1),
    ],
    ids=["a job whose prefix begins alike", "another stack", "another attempt", "another run"],
)
def test_names_that_begin_alike_are_told_apart(running: World, name: str) -> None:
    # The rule's pattern matches by prefix, so this controller hears of them.
    calls = len(running.gate.calls)
    detail = {**running.sagemaker.detail(running.name("a")), "TrainingJobStatus": "Failed"}
    running.deliver(running.job_event({**detail, "TrainingJobName": name}))
    assert running.gate.calls[calls:] == ["get_item"]
    assert running.run_state("a") == "running"
    assert running.sagemaker.created == [running.name("a")]


def test_two_attempts_without_progress_stop_the_run(running: World) -> None:
    running.fails(running.name("a"), INTERNAL, step=100)
    running.fails(running.name("a", 2), INTERNAL, step=100)
    running.fails(running.name("a", 3), INTERNAL, step=100)
    assert len(running.sagemaker.created) == 3
    assert running.run_state("a") == "failed"
    assert "still at step 100" in running.sns.messages[-1]["Message"]


def test_progress_resets_the_bound(running: World) -> None:
    for attempt, step in enumerate([100, 100, 200, 200], start=1):
        running.fails(running.name("a", attempt), INTERNAL, step=step)
    assert len(running.sagemaker.created) == 5


def test_attempts_that_never_trained_are_not_held_against_the_run(running: World) -> None:
    running.fails(running.name("a"), INTERNAL, step=100)
    for attempt in (2, 3, 4):
        running.fails(running.name("a", attempt), "CapacityError: none left", trained=False)
        sweep_for(running, CAPACITY_PAUSE_SECONDS[attempt - 2])
    assert running.sagemaker.alive() == [running.name("a", 5)]
    fourth = running.attempt("a", 4)
    assert fourth is not None
    assert not fourth.trained
    assert "resumes from the newest complete checkpoint (step 100)" in fourth.text


def test_attempts_that_never_trained_do_not_hide_useless_ones(running: World) -> None:
    running.fails(running.name("a"), INTERNAL)
    running.fails(running.name("a", 2), "CapacityError: none left", trained=False)
    sweep_for(running, CAPACITY_PAUSE_SECONDS[0])
    running.fails(running.name("a", 3), INTERNAL)
    assert len(running.sagemaker.created) == 3
    assert "attempts that reached training" in running.sns.messages[-1]["Message"]


def test_damaged_progress_counts_as_none(running: World) -> None:
    for attempt in (1, 2):
        running.s3.put_object(
            Bucket="checkpoints", Key="pretrain/runs/a/progress.json", Body=b"\xff{"
        )
        running.fails(running.name("a", attempt), INTERNAL)
    assert len(running.sagemaker.created) == 2
    assert running.run_state("a") == "failed"


def test_attempts_are_bounded(running: World) -> None:
    for attempt in range(1, 6):
        running.fails(running.name("a", attempt), INTERNAL, step=100 * attempt)
    assert len(running.sagemaker.created) == 5
    assert running.run_state("a") == "failed"
    assert "All 5 attempts are used" in running.sns.messages[-1]["Message"]


def test_a_stopped_run_is_not_resubmitted_whatever_its_job_says(running: World) -> None:
    running.ask("stop", "a")
    running.fails(running.name("a"), INTERNAL, step=100)
    assert len(running.sagemaker.created) == 1
    assert running.run_state("a") == "stopped"


def test_a_stop_between_decision_and_resubmission_wins(running: World) -> None:
    running.gate.hooks["transact_write_items"] = lambda: running.quiet.store.stop_run(
        running.owner().owner, "a"
    )
    running.fails(running.name("a"), INTERNAL, step=100)
    assert len(running.sagemaker.created) == 1
    assert running.run_state("a") == "stopped"
    assert all(attempt.settled for attempt in running.quiet.store.attempts())


def test_a_resubmission_waits_for_the_quota_its_predecessor_still_holds(running: World) -> None:
    busy = error("ResourceLimitExceeded", "in use")
    running.gate.fail("create_training_job", busy, busy)
    running.fails(running.name("a"), INTERNAL, step=100)
    assert running.sagemaker.alive() == [running.name("a", 2)]


def test_a_resubmission_that_sagemaker_refuses_ends_the_run_and_is_told(running: World) -> None:
    running.gate.fail("create_training_job", error("ValidationException", "the role is gone"))
    event = running.fails(running.name("a"), INTERNAL, step=100)
    assert running.run_state("a") == "failed"
    assert "the role is gone" in running.sns.messages[-1]["Message"]
    running.deliver({**event, "id": "again"})
    running.sweep()
    assert len(running.sagemaker.created) == 1


def test_the_frozen_files_are_not_written_again(running: World) -> None:
    running.s3.put_object(Bucket="assets", Key="bundle.tar.gz", Body=b"edited")
    calls = len(running.gate.calls)
    running.fails(running.name("a"), INTERNAL, step=100)
    assert not {"put_object", "copy_object"} & set(running.gate.calls[calls:])
    assert running.frozen("bundle.tar.gz") == b"the bundle"


def test_a_silent_topic_does_not_stop_the_controller(running: World) -> None:
    running.gate.fail("publish", error("AuthorizationError", "no"))
    running.fails(running.name("a"), INTERNAL, step=100)
    assert running.sagemaker.alive() == [running.name("a", 2)]


def test_maximum_attempts_is_the_frozen_one(world: World) -> None:
    world.cloudformation("Create", run_id="a", job=definition(maximum_attempts=1))
    world.cloudformation("Update", run_id="a", old_run_id="a", job=definition(maximum_attempts=9))
    world.fails(world.name("a"), INTERNAL, step=100)
    assert len(world.sagemaker.created) == 1


# --- The five-minute sweep -----------------------------------------------------------------------


def test_the_sweep_treats_an_end_whose_event_never_came(running: World) -> None:
    running.progress(100)
    running.sagemaker.end(running.name("a"), "Failed", reason=INTERNAL)
    running.sweep()
    assert running.sagemaker.alive() == [running.name("a", 2)]
    running.sweep()
    assert len(running.sagemaker.created) == 2


def test_the_sweep_stops_what_is_alive_although_its_run_is_stopped(running: World) -> None:
    running.quiet.store.stop_run(running.owner().owner, "a")
    running.sweep()
    assert running.sagemaker.alive() == []


def test_the_sweep_leaves_a_young_claim_alone_and_launches_an_abandoned_one(world: World) -> None:
    world.cloudformation("Create")
    world.claim(by="a crashed invocation")
    world.sweep()
    assert world.sagemaker.created == []
    world.time.sleep(CLAIM_GRACE_SECONDS)
    world.sweep()
    assert world.sagemaker.alive() == [world.name("a")]
    world.sweep()
    assert len(world.sagemaker.created) == 1


def test_the_sweep_ends_a_run_whose_job_was_deleted_in_sagemaker(running: World) -> None:
    del running.sagemaker.jobs[running.name("a")]
    running.sweep()
    assert running.run_state("a") == "running", "too young to conclude anything"
    running.time.sleep(CLAIM_GRACE_SECONDS)
    running.sweep()
    assert running.run_state("a") == "stopped"


def test_one_attempt_that_fails_does_not_keep_the_sweep_from_the_others(running: World) -> None:
    running.ask("stop", "a")
    running.time.sleep(200)
    running.ask("start", "b")
    running.sagemaker.end(running.name("b"), "Completed")
    running.gate.fail("describe_training_job", error("AccessDeniedException", "no"))
    with pytest.raises(Exception, match="AccessDenied"):
        running.sweep()
    assert running.run_state("b") == "completed"

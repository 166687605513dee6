"""Update: a new run_id launches, an old one never does, everything else changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lifecycle.fakes import error
from tests.lifecycle.world import World, definition


def test_with_the_same_run_id_only_records_the_definition(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    dearer = replace(definition(), hourly_price_usd=200.0)
    answer = world.cloudformation("Update", run_id="a", old_run_id="a", job=dearer)
    assert answer["Status"] == "SUCCESS"
    assert world.sagemaker.created == [world.name("a")]
    assert world.sagemaker.alive() == [world.name("a")]
    assert '"hourly_price_usd": 200.0' in world.owner().definition


@pytest.mark.parametrize("event", ["training", "ended"])
def test_another_bundle_alone_launches_nothing(world: World, event: str) -> None:
    """What a deploy after an edit of a training script sends: the asset's hash and no more."""
    world.cloudformation("Create", run_id="a")
    if event == "ended":
        world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))
    job = definition()
    edited = replace(job, bundle=replace(job.bundle, key="0" * 64 + ".gz"))
    answer = world.cloudformation("Update", run_id="a", old_run_id="a", job=edited)
    assert answer["Status"] == "SUCCESS"
    assert world.sagemaker.created == [world.name("a")]
    assert (world.sagemaker.alive() == []) is (event == "ended")


def test_never_relaunches_a_run_that_ended(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.deliver(world.job_event(world.sagemaker.end(world.name("a"), "Completed")))
    changed = replace(definition(), maximum_attempts=9)
    world.cloudformation("Update", run_id="a", old_run_id="a", job=changed)
    assert world.sagemaker.created == [world.name("a")]


def test_with_a_new_run_id_stops_the_old_run_first_and_then_launches(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    held: list[list[str]] = []
    world.gate.hooks["create_training_job"] = lambda: held.append(world.sagemaker.holding())
    answer = world.cloudformation("Update", run_id="b", old_run_id="a")
    assert answer["Status"] == "SUCCESS"
    assert answer["Data"]["JobName"] == world.name("b")
    assert held == [[]], "the old job's instances are free when the new one asks for its own"
    assert world.sagemaker.alive() == [world.name("b")]
    assert answer["PhysicalResourceId"] == world.answers[0]["PhysicalResourceId"]


def test_a_refused_update_leaves_the_old_run_alone(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.s3.delete_object(Bucket="dataset", Key="tokens/manifest.json")
    assert world.cloudformation("Update", run_id="b", old_run_id="a")["Status"] == "FAILED"
    assert world.sagemaker.alive() == [world.name("a")]
    rollback = world.cloudformation("Update", run_id="a", old_run_id="b")
    assert rollback["Status"] == "SUCCESS"
    assert world.sagemaker.alive() == [world.name("a")]
    assert world.owner().wants("a")


def test_a_rollback_stops_the_new_run_and_never_relaunches_the_old_one(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.cloudformation("Update", run_id="b", old_run_id="a")
    rollback = world.cloudformation("Update", run_id="a", old_run_id="b")
    assert rollback["Status"] == "SUCCESS"
    assert "'a' is not launched again" in rollback["Reason"]
    assert world.sagemaker.alive() == []
    assert world.sagemaker.created == [world.name("a"), world.name("b")]
    world.sweep()
    assert world.sagemaker.created == [world.name("a"), world.name("b")]
    # The same rollback once more (ContinueUpdateRollback).
    assert world.cloudformation("Update", run_id="a", old_run_id="b")["Status"] == "SUCCESS"


def test_a_rollback_of_an_update_that_never_came_through_keeps_the_old_run(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    rollback = world.cloudformation("Update", run_id="a", old_run_id="b")
    assert rollback["Status"] == "SUCCESS"
    assert world.sagemaker.alive() == [world.name("a")]


def test_a_rollback_after_sagemaker_refused_the_new_run_does_not_relaunch(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.gate.fail("create_training_job", error("ValidationException", "no"))
    assert world.cloudformation("Update", run_id="b", old_run_id="a")["Status"] == "FAILED"
    assert world.cloudformation("Update", run_id="a", old_run_id="b")["Status"] == "SUCCESS"
    assert world.sagemaker.alive() == []
    # The refused run_id is still free.
    assert world.cloudformation("Update", run_id="b", old_run_id="a")["Status"] == "SUCCESS"
    assert world.sagemaker.alive() == [world.name("b")]


def test_a_rollback_of_a_removal_stays_stopped(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.cloudformation("Update", old_run_id="a")
    assert world.cloudformation("Update", run_id="a")["Status"] == "SUCCESS"
    assert world.sagemaker.created == [world.name("a")]
    assert world.sagemaker.alive() == []


def test_a_run_that_was_rolled_back_is_used_for_good(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.cloudformation("Update", run_id="b", old_run_id="a")
    world.cloudformation("Update", run_id="a", old_run_id="b")
    again = world.cloudformation("Update", run_id="b", old_run_id="a")
    assert again["Status"] == "FAILED"
    assert "run_id already used: 'b'" in again["Reason"]
    assert world.cloudformation("Update", run_id="a", old_run_id="b")["Status"] == "SUCCESS"
    assert world.sagemaker.alive() == []


def test_a_used_run_id_is_refused_outside_a_rollback(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    world.cloudformation("Update", run_id="b", old_run_id="a")
    world.cloudformation("Update", run_id="c", old_run_id="b")
    answer = world.cloudformation("Update", run_id="a", old_run_id="c")
    assert answer["Status"] == "FAILED"
    assert "run_id already used: 'a'" in answer["Reason"]
    assert world.sagemaker.alive() == [world.name("c")], "refused before anything was stopped"
    assert world.cloudformation("Update", run_id="c", old_run_id="a")["Status"] == "SUCCESS"
    assert world.sagemaker.alive() == [world.name("c")]


def test_a_removed_run_id_stops_the_run_and_says_so(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    answer = world.cloudformation("Update", old_run_id="a")
    assert answer["Status"] == "SUCCESS"
    assert "Run 'a' is stopped" in answer["Reason"]
    assert world.sagemaker.alive() == []
    assert "pretrain a: stopped by a deploy" in world.subjects()


def test_an_added_run_id_launches_and_its_rollback_stops(world: World) -> None:
    world.cloudformation("Create")
    world.cloudformation("Update", run_id="a")
    assert world.sagemaker.alive() == [world.name("a")]
    world.cloudformation("Update", old_run_id="a")
    assert world.sagemaker.alive() == []


def test_a_run_started_by_hand_outlives_a_deploy_that_is_not_about_it(world: World) -> None:
    world.cloudformation("Create")
    world.ask("start", "hand")
    assert world.cloudformation("Update")["Status"] == "SUCCESS"
    assert world.sagemaker.alive() == [world.name("hand")]


@pytest.mark.usefixtures("coarse")
def test_an_old_job_that_does_not_stop_fails_the_update_in_time(world: World) -> None:
    world.sagemaker.STOP_SECONDS = 1e9
    world.cloudformation("Create", run_id="a")
    begun = world.time.now()
    answer = world.cloudformation("Update", run_id="b", old_run_id="a")
    assert answer["Status"] == "FAILED"
    assert world.name("a") in answer["Reason"]
    assert world.time.now() - begun <= 55 * 60
    assert world.sagemaker.created == [world.name("a")]


def test_attempts_keep_to_the_definition_their_run_was_launched_with(world: World) -> None:
    world.cloudformation("Create", run_id="a")
    changed = definition()
    changed.request["AlgorithmSpecification"]["TrainingImage"] = "another-image"
    world.cloudformation("Update", run_id="a", old_run_id="a", job=changed)
    frozen = world.frozen("run.json")
    world.fails(world.name("a"), "InternalServerError", step=100)
    request = world.sagemaker.jobs[world.name("a", 2)]["Request"]
    assert request["AlgorithmSpecification"]["TrainingImage"] == "image"
    assert world.frozen("run.json") == frozen


def test_another_job_name_is_refused_while_a_job_of_the_old_one_lives(world: World) -> None:
    """The new deploy's rights end at its own name, so nothing could stop the old job."""
    world.cloudformation("Create", run_id="a")
    renamed = definition(job="renamed")
    answer = world.cloudformation("Update", run_id="a", old_run_id="a", job=renamed)
    assert answer["Status"] == "FAILED"
    assert f"while {world.name('a')} is not at its end" in answer["Reason"]
    assert world.cloudformation("Update", run_id="a", old_run_id="a")["Status"] == "SUCCESS"
    world.ask("stop", "a")
    world.time.sleep(300)
    world.sweep()
    again = world.cloudformation("Update", run_id="a", old_run_id="a", job=renamed)
    assert again["Status"] == "SUCCESS"

"""``runs`` and ``stop`` show and end what the real controller launched."""

from __future__ import annotations

import pytest

from cdk_blackwell.cli.errors import AwsRefusedError, CommandError, RefusedError
from tests.cli.deployment import Deployment
from tests.lifecycle.fakes import TABLE


@pytest.fixture
def failed_once(deployment: Deployment) -> Deployment:
    """Attempt 1 lost its capacity after two hours; attempt 2 trains."""
    world = deployment.world
    assert world.ask("start", "a")["state"] == "starting"
    world.sagemaker.jobs[world.name("a")]["BillableTimeInSeconds"] = 7_200
    world.progress(400)
    world.fails(world.name("a"), "InternalServerError: We encountered an internal error.")
    world.sagemaker.jobs[world.name("a", 2)]["BillableTimeInSeconds"] = 1_800
    return deployment


def test_a_run_shows_its_attempts_reasons_and_cost(failed_once: Deployment) -> None:
    (run,) = failed_once.json("runs")["runs"]
    first, second = run["attempts"]
    assert (run["run_id"], run["state"], run["maximum_attempts"]) == ("a", "running", 5)
    assert (first["cause"], first["action"]) == ("internal", "resubmit")
    assert first["last_complete_step"] == 400
    assert first["usd"] == pytest.approx(2 * 113.93)
    assert (second["status"], second["cause"]) == ("InProgress", None)
    assert run["usd"] == pytest.approx(2.5 * 113.93)


def test_the_tables_keep_within_80_columns(failed_once: Deployment) -> None:
    for words in (("runs",), ("runs", "a")):
        lines = failed_once.run(*words).stdout.splitlines()
        assert max(map(len, lines)) <= 80
    assert "227.86" in "".join(lines)


def test_attempts_that_got_no_instances_are_not_counted(deployment: Deployment) -> None:
    world = deployment.world
    world.ask("start", "a")
    world.fails(world.name("a"), "CapacityError: none left", trained=False)
    world.time.sleep(600)
    world.sweep()
    assert world.sagemaker.alive() == [world.name("a", 2)]
    (line,) = (each for each in deployment.run("runs").stdout.splitlines() if " running " in each)
    assert " 1/5 " in line


def test_an_unknown_run_names_the_known_ones(failed_once: Deployment) -> None:
    error = failed_once.run("runs", "b").exception
    assert isinstance(error, CommandError)
    assert str(error) == "job 'pretrain' has no run 'b'; it has 'a'"


def test_stop_ends_the_current_run_for_good(failed_once: Deployment) -> None:
    world = failed_once.world
    assert failed_once.json("stop", "--dry-run")["state"] == "dry_run"
    assert world.sagemaker.alive() == [world.name("a", 2)]
    answer = failed_once.json("stop")
    assert (answer["state"], answer["job_name"]) == ("stopping", world.name("a", 2))
    assert world.sagemaker.alive() == []
    assert not world.owner().wants("a")


def test_stopping_what_never_ran_is_refused(deployment: Deployment) -> None:
    done = deployment.run("stop", "z")
    assert isinstance(done.exception, RefusedError)
    assert "never launched" in str(done.exception)


def test_words_of_others_are_shown_as_they_are(deployment: Deployment) -> None:
    world = deployment.world
    world.ask("start", "a")
    world.fails(world.name("a"), "AlgorithmError: CDKB class=user step=1 rank=0: [rank0]: no [/x]")
    done = deployment.run("runs", "a")
    assert done.exit_code == 0, done.exception
    assert "[rank0]" in done.stdout
    assert "[/x]" in done.stdout


def test_a_damaged_run_is_named_in_one_line(failed_once: Deployment) -> None:
    world = failed_once.world
    key = {"pk": {"S": "run"}, "sk": {"S": f"{world.owner().owner}#a"}}
    world.dynamodb.update_item(TableName=TABLE, Key=key, UpdateExpression="REMOVE job_definition")
    error = failed_once.run("runs").exception
    assert isinstance(error, AwsRefusedError)
    assert "of the controller's table cannot be read" in str(error)

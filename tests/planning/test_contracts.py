"""The names that constructs, controller and trainer share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdk_blackwell.planning import contracts
from cdk_blackwell.planning.contracts import Failure, RunLocation, StackOutput

STACK = "arn:aws:cloudformation:us-west-2:123456789012:stack/S/0000"


def test_the_longest_names_make_a_legal_training_job_name() -> None:
    name = contracts.training_job_name(job="a" * 22, stack_id=STACK, run_id="b" * 24, attempt=999)
    assert len(name) <= contracts.TRAINING_JOB_NAME_LENGTH
    assert name.startswith("a" * 22 + "-" + contracts.stack_tag(STACK) + "-b")


def test_two_stacks_never_share_a_name() -> None:
    assert contracts.stack_tag(STACK) != contracts.stack_tag(STACK + "1")


@pytest.mark.parametrize("run_id", ["", "-a", "a-", "a--b", "a_b", "a" * 25, "ä"])
def test_an_unusable_run_id_is_refused_by_name(run_id: str) -> None:
    with pytest.raises(ValueError, match="run_id"):
        contracts.check_run_id(run_id)


@pytest.mark.parametrize("attempt", [0, 1000, -1])
def test_attempts_count_from_1_to_999(attempt: int) -> None:
    with pytest.raises(ValueError, match="attempt"):
        contracts.training_job_name(job="j", stack_id=STACK, run_id="r", attempt=attempt)


def test_a_run_lives_below_its_job() -> None:
    run = RunLocation(bucket="b", job="pretrain", run_id="r1")
    assert run.uri == "s3://b/pretrain/runs/r1"
    assert run.key(contracts.RUN_FILE) == "pretrain/runs/r1/run.json"


@given(st.integers(min_value=0, max_value=10**10 - 1))
def test_step_folders_sort_as_their_numbers(step: int) -> None:
    assert contracts.parse_step_folder(contracts.step_folder(step)) == step
    assert contracts.step_folder(step) <= contracts.step_folder(10**10 - 1)


def test_other_folders_are_not_checkpoints() -> None:
    assert contracts.parse_step_folder("step-12") is None
    assert contracts.parse_step_folder("export") is None


def test_paths_below_opt_ml_move_and_others_stay() -> None:
    assert contracts.rebase_container_path("/opt/ml/checkpoints", "/x") == Path("/x/checkpoints")
    assert contracts.rebase_container_path("/opt/mlx", "/x") == Path("/opt/mlx")


@given(
    kind=st.sampled_from(contracts.FAILURE_CLASSES),
    step=st.integers(-1, 10**9),
    rank=st.integers(-1, 511),
    message=st.text(max_size=200),
    before=st.text(alphabet="abc :.", max_size=50),
)
def test_a_failure_is_found_behind_sagemakers_own_words(
    kind: contracts.FailureClass, step: int, rank: int, message: str, before: str
) -> None:
    failure = Failure(kind=kind, step=step, rank=rank, message=message)
    assert Failure.find(f"{before}{failure.render()}") == failure


def test_a_failure_text_fits_the_failure_reason() -> None:
    text = Failure(kind="user", message="x" * 5000).render()
    assert len(text) == contracts.FAILURE_TEXT_LENGTH


@pytest.mark.parametrize(
    "text", ["", "AlgorithmError: exit 1", "CDKB class=unheard step=1 rank=0: x"]
)
def test_other_texts_are_no_failure_of_ours(text: str) -> None:
    assert Failure.find(text) is None


def test_every_entrypoint_string_is_short_enough_for_sagemaker() -> None:
    words = [*contracts.CONTAINER_ENTRYPOINT, *contracts.CONTAINER_ARGUMENTS]
    assert all(len(word) <= 256 for word in words)


def test_a_stack_output_comes_back_as_it_was_written() -> None:
    output = StackOutput(
        controller="function",
        job="pretrain",
        tier="small",
        checkpoint_bucket="checkpoints",
        dataset_bucket="datasets",
        topic="arn:aws:sns:us-west-2:123456789012:topic",
        table="table",
        dashboard="dashboard",
    )
    value = output.to_dict()
    assert StackOutput.from_json(json.dumps(value)) == output
    assert StackOutput.from_json(json.dumps({**value, "newer": [1]})) == output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "must be an object"),
        ('{"controller": "f", "job": 7}', "lacks a text 'job', got 7; deploy the stack again"),
    ],
)
def test_an_output_of_something_else_is_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        StackOutput.from_json(text)

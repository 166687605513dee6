"""Expected mistakes: one line with the value got, what is allowed and what to do."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aws_cdk import App

from app import build
from cdk_blackwell.planning.contracts import EXIT_BAD_INPUT, EXIT_DOES_NOT_FIT
from cdk_blackwell.planning.errors import DoesNotFitError, PlanError
from stacks.settings import Settings

PLAN = "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p"
ROOT = Path(__file__).parent.parent.parent
IN_IMAGE = {"packages_in_image": "true"}
Refuse = Callable[..., str]


@pytest.mark.parametrize(
    ("zone", "words"),
    [("us-west-2b", ["'us-west-2b'", "us-east-1"]), ("use1-az2", ["'use1-az2'", "zone ids"])],
)
def test_a_zone_that_is_not_of_the_region_deployed_to_is_refused(
    refuse: Refuse, monkeypatch: pytest.MonkeyPatch, zone: str, words: list[str]
) -> None:
    monkeypatch.setenv("CDK_DEFAULT_REGION", "us-east-1")
    text = refuse(availability_zone=zone)
    assert all(word in text for word in [*words, "AWS_DEFAULT_REGION"])


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"availability_zone": "moon-1"}, ["'moon-1'", "us-west-2b"]),
        ({"availability_zone": "usw2-az2"}, ["'usw2-az2'", "zone ids"]),
        (
            {"region": "us-east-1", "availability_zone": "us-west-2b"},
            ["'us-west-2b'", "us-east-1"],
        ),
        (
            {"model": "llama-2-13b", "tiers": "small"},
            ["13.02B", "up to 7B", "MidModelJob"],
        ),
        ({"model": "gpt-9"}, ["'gpt-9'", "llama-3.2-1b", "config.json"]),
        ({"sequence_length": "8k"}, ["sequence_length", "'8k'", "whole number"]),
        ({"sequence_length": "8192.5"}, ["sequence_length", "whole number"]),
        ({"max_cost": "100"}, ["'max_cost'", "did you mean max_cost_usd"]),
        ({"sequence_lenght": "8192"}, ["'sequence_lenght'", "did you mean sequence_length"]),
        ({"mid_sequence_lenght": "8192"}, ["did you mean mid_sequence_length?"]),
        ({"large_precision": "fp4"}, ["large_precision", "'fp4'", "fp8"]),
        ({"tiers": "small,huge"}, ["tiers", "'huge'", "small, mid, large-sharded"]),
        ({"run_id": "a"}, ["hourly_price_usd and max_cost_usd are missing"]),
        ({"packages_in_image": "maybe"}, ["packages_in_image", "true or false"]),
        ({"precision": "fp4"}, ["precision", "'fp4'", "bf16"]),
        ({"global_batch_tokens": "1000"}, ["1,000", "multiple of sequence_length 8,192"]),
        ({"run_id": "-a"}, ["'-a'", "1-24 letters"]),
        ({"max_cost_usd": "100"}, ["max_cost_usd", "hourly_price_usd is not given"]),
        (
            {"max_cost_usd": "5000", "hourly_price_usd": "99", "tiers": "small"},
            ["7,286.40 USD", "max_cost_usd 5,000.00", "3 attempts of up to 24.0 hours", "Lower"],
        ),
        (
            {"spot_max_wait_hours": "48", "training_plan_arn": PLAN},
            ["both given", "one source of instances"],
        ),
        ({"spot_max_wait_hours": "1"}, ["max_wait of 3600 s", "86400 s (max_runtime)"]),
        ({"keep_alive_minutes": "600"}, ["keep_alive of 36000 s", "21600 s"]),
        ({"storage_gib": "1300"}, ["1300", "next larger is 2400"]),
        ({"throughput_per_tib": "300"}, ["300", "125, 250, 500, 1000"]),
        ({"max_pending_hours": "0.1"}, ["360 s", "1800 s (30 minutes)"]),
        ({"dataset_prefix": "/tokens"}, ["'/tokens'", "for example tokens/"]),
        ({"training_plan_arn": "cr-0123"}, ["'cr-0123'", "training-plan/<name>"]),
        (
            {
                "region": "us-east-1",
                "training_plan_arn": "arn:aws:sagemaker:us-west-2:123456789012:training-plan/p",
            },
            ["us-west-2", "us-east-1"],
        ),
        ({"micro_batch_size": "3"}, ["micro_batch_size is 3", "use 1, 2"]),
    ],
)
def test_the_line_says_what_is_wrong_and_what_to_do(
    refuse: Refuse, context: dict[str, str], words: list[str]
) -> None:
    line = refuse(**context)
    for word in words:
        assert word in line


def test_keys_that_belong_to_others_are_passed_over() -> None:
    others = {
        "cli-telemetry": False,
        "acknowledged-issue-numbers": [34892],
        "@aws-cdk/core:anyFlag": True,
        "availability-zones:account=123456789012:region=us-west-2": ["us-west-2a"],
        "team": "speech",
    }
    assert Settings.from_context(others) == Settings()


def test_a_broken_config_json_is_named(refuse: Refuse, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text("{not json")
    assert str(path) in refuse(model=str(path))


def test_a_config_json_that_lacks_a_field_names_it(
    refuse: Refuse, tmp_path: Path, tiny_config: Path
) -> None:
    config = json.loads(tiny_config.read_text())
    del config["num_hidden_layers"]
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert "num_hidden_layers" in refuse(model=str(path))


def test_a_model_that_does_not_fit_is_refused_with_both_numbers(refuse: Refuse) -> None:
    line = refuse(
        model="llama-2-7b",
        sequence_length="131072",
        global_batch_tokens=str(131_072 * 8),
        activation_checkpointing="none",
        context_parallel="1",
    )
    assert re.search(r"needs [0-9,.]+ GiB.* of [0-9,.]+ GiB", line)
    assert "use " in line


def test_a_missing_wheelhouse_names_the_command_that_fills_it(
    refuse: Refuse, tmp_path: Path
) -> None:
    line = refuse(packages_in_image="false", wheelhouse=str(tmp_path / "none"))
    assert "safetensors" in line
    assert "cdk-blackwell vendor" in line


@pytest.mark.parametrize(
    ("context", "code", "beginning"),
    [
        (
            {"model": "/does/not/exist"},
            EXIT_BAD_INPUT,
            "context model: there is no such file, and model '/does",
        ),
        (
            {"model": "llama-2-13b", "tiers": "small"},
            EXIT_DOES_NOT_FIT,
            "llama-2-13b has 13.02B parameters",
        ),
    ],
)
def test_app_py_prints_one_line_and_ends_with_the_contracts_code(
    context: dict[str, str], code: int, beginning: str
) -> None:
    done = subprocess.run(
        [sys.executable, "app.py"],
        cwd=ROOT,
        env={**_environment(), "CDK_CONTEXT_JSON": json.dumps({**context, **IN_IMAGE})},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code
    (line,) = done.stderr.strip().splitlines()
    assert line.startswith(f"cdk-blackwell: {beginning}")


@pytest.mark.parametrize(
    ("context", "error"),
    [
        ({"model": "llama-2-13b", "tiers": "small"}, DoesNotFitError),
        ({"max_cost_usd": "100", "hourly_price_usd": "99"}, DoesNotFitError),
        ({"max_cost_usd": "5000", "hourly_price_usd": "99", "tiers": "small"}, DoesNotFitError),
        (
            {"sequence_length": "131072", "global_batch_tokens": str(131_072 * 8)}
            | {"model": "llama-2-7b", "activation_checkpointing": "none", "context_parallel": "1"},
            DoesNotFitError,
        ),
        ({"run_id": "a"}, ValueError),
        ({"global_batch_tokens": "1000"}, PlanError),
    ],
)
def test_what_a_rule_refuses_is_told_apart_from_bad_input(
    tmp_path: Path, context: dict[str, str], error: type[ValueError]
) -> None:
    with pytest.raises(error) as caught:
        build(App(context={**IN_IMAGE, **context}, outdir=str(tmp_path / "out")))
    assert caught.type is error


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("CDK_CONTEXT")}

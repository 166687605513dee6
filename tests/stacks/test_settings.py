"""Context values become one checked object, or one line that names the key."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from cdk_blackwell.planning.contracts import Tier
from cdk_blackwell.planning.model_shape import ModelShape
from cdk_blackwell.planning.plan import make_plan
from cdk_blackwell.planning.trial import TrialReport
from stacks.context import _OTHER_NAMES, SettingsError
from stacks.job_props import job_props
from stacks.settings import PREFIXES, JobSettings, Settings
from tests.jobs.examples import PLAN


def test_text_from_the_command_line_and_numbers_from_cdk_json_are_read_alike() -> None:
    text = Settings.from_context({"sequence_length": "4096", "max_pending_hours": "1.5"})
    numbers = Settings.from_context({"sequence_length": 4096, "max_pending_hours": 1.5})
    assert text == numbers
    assert text.jobs["mid"].sequence_length == 4096


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("train_tokens", "1e9", 1_000_000_000),
        ("train_tokens", "99999999999999999999", 99_999_999_999_999_999_999),
        ("packages_in_image", "yes", True),
        ("account", "012345678901", "012345678901"),
        ("region", "us-gov-west-1", "us-gov-west-1"),
    ],
)
def test_values_are_read_exactly(key: str, value: Any, expected: Any) -> None:
    settings = Settings.from_context({key: value})
    owner = settings if hasattr(settings, key) else settings.jobs["large-sharded"]
    assert getattr(owner, key) == expected


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("train_tokens", "many", "a whole number without a unit is expected"),
        ("train_tokens", "1.5", "a whole number without a unit is expected"),
        ("train_tokens", True, "a whole number without a unit is expected"),
        ("train_tokens", "-1", "cannot be negative"),
        ("peak_learning_rate", "nan", "a number is expected"),
        ("peak_learning_rate", "inf", "a number is expected"),
        ("packages_in_image", "perhaps", "true or false"),
        ("precision", "fp4", "allowed are bf16, fp32"),
        ("account", "12", "twelve digits"),
        ("account", 12345678901, "within quotes"),
        ("region", "moon", "us-west-2"),
        ("traintokens", "5", "did you mean train_tokens"),
        ("max_runtime", 16, "did you mean max_runtime_hours"),
        ("small_nodes", 2, "did you mean small_instance_count"),
        ("zone", "us-west-2b", "did you mean availability_zone"),
        ("runId", "first", "did you mean run_id"),
        ("train_tokens", "20B", "a whole number without a unit is expected"),
        ("model", "llama-3.1-70b", "its name says 70B"),
        ("tiers", [], "empty list: give some of small, mid, large-sharded"),
        ("model", "m" * 5000, "context model: there is no such file, and"),
        ("model", "\0", "context model: there is no such file, and"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(key: str, value: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        Settings.from_context({key: value})
    assert key in str(refused.value)


@pytest.mark.parametrize("name", ["Llama-3.2-1B", "meta-llama/Llama-3.2-1B"])
def test_a_preset_may_be_spelt_as_its_repository_is(name: str) -> None:
    job = Settings.from_context({"small_model": name}).jobs["small"]
    assert job.model_shape() == ModelShape.preset("llama-3.2-1b")


def test_every_other_name_leads_to_a_key() -> None:
    keys = {item.name for kind in (Settings, JobSettings) for item in fields(kind)}
    assert set(_OTHER_NAMES.values()) <= keys


def test_context_of_other_tools_is_left_alone() -> None:
    assert Settings.from_context({"cli-telemetry": False, "vpc-provider:x": {}}) == Settings()


def test_a_key_holds_for_every_tier_and_with_a_prefix_for_one() -> None:
    settings = Settings.from_context({"sequence_length": "4096", "large_sequence_length": 131_072})
    assert {tier: job.sequence_length for tier, job in settings.jobs.items()} == {
        "small": 4096,
        "mid": 4096,
        "large-sharded": 131_072,
    }


@pytest.mark.parametrize(
    ("context", "tiers"),
    [
        ({}, ("small", "mid", "large-sharded")),
        ({"tiers": "mid"}, ("mid",)),
        ({"tiers": "large-sharded, small"}, ("large-sharded", "small")),
        ({"tiers": ["mid", "mid"]}, ("mid",)),
        ({"model": "llama-3.2-1b"}, ("small",)),
        ({"model": "llama-2-13b"}, ("mid",)),
        ({"model": "qwen2.5-32b"}, ("large-sharded",)),
        ({"mid_model": "llama-2-13b"}, ("small", "mid", "large-sharded")),
        ({"model": "llama-2-13b", "tiers": "small"}, ("small",)),
    ],
)
def test_the_application_has_the_tiers_that_are_asked_for(
    context: dict[str, Any], tiers: tuple[str, ...]
) -> None:
    assert Settings.from_context(context).tiers == tiers


def test_the_file_system_is_sized_for_what_lies_on_it() -> None:
    (large,) = Settings.from_context({"train_tokens": "640e9"}).storage_needs()
    assert large.capacity_gib >= 4800
    # The examples see fewer tokens: checkpoints alone count.
    (example,) = Settings().storage_needs()
    assert example.capacity_gib == 2400
    assert Settings.from_context({"tiers": "small"}).storage_needs() == []
    both = Settings.from_context({"mid_instance_count": "4"}).storage_needs()
    # The dataset lies there once: the second job adds its checkpoints only.
    assert len(both) == 2
    assert sum(need.capacity_gib for need in both) < 2 * large.capacity_gib


def test_no_key_of_the_application_begins_as_a_tiers() -> None:
    names = [item.name for kind in (Settings, JobSettings) for item in fields(kind)]
    assert not [name for name in names if name.startswith(tuple(PREFIXES.values()))]


def test_a_trial_report_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "trial.json"
    report = TrialReport(
        schema_version=1,
        model=ModelShape.preset("llama-3.2-1b"),
        gpus=8,
        complete=True,
        candidates=(),
        winner=None,
        reason="nothing was tried",
    )
    path.write_text(report.to_json())
    jobs = Settings.from_context({"small_trial_report": str(path)}).jobs
    assert job_props(jobs["small"])["measured"] == report
    assert job_props(jobs["mid"])["measured"] is None


@pytest.mark.parametrize(
    ("text", "words"),
    [(None, "cannot be read: No such file"), ("{}", "schema_version None"), ("[", "is not JSON")],
)
def test_what_is_no_trial_report_is_refused_by_its_key(
    tmp_path: Path, text: str | None, words: str
) -> None:
    path = tmp_path / "trial.json"
    if text is not None:
        path.write_text(text)
    settings = Settings.from_context({"trial_report": str(path)}).jobs["small"]
    with pytest.raises(SettingsError, match=rf"context trial_report .*{words}"):
        settings.measured()


@pytest.mark.parametrize("tier", ["small", "mid", "large-sharded"])
def test_every_example_is_predicted_to_end_within_its_run_time(tier: Tier) -> None:
    job = Settings().jobs[tier]
    plan = make_plan(
        tier=tier,
        model=job.model_shape(),
        sequence_length=job.sequence_length,
        global_batch_tokens=job.global_batch_tokens,
        train_tokens=job.train_tokens,
        instance_count=job.instance_count,
    )
    assert plan.cost.total_hours < job.max_runtime_hours


@pytest.mark.parametrize(
    ("context", "words"),
    [
        ({"training_plan_fee_usd": 900}, "training_plan_fee_usd is 900, which belongs to a job"),
        ({"training_plan_arn": PLAN, "keep_alive_minutes": 5}, "keep_alive_minutes is 5, which"),
        ({"spot_max_wait_hours": 48, "keep_alive_minutes": 5}, "on-demand instances: leave it out"),
    ],
)
def test_what_the_capacity_has_no_use_for_is_not_ignored(
    context: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError, match=words):
        job_props(Settings.from_context(context).jobs["small"])

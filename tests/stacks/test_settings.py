"""Context values become one checked object, or one line that names the key."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.settings import Settings, SettingsError


def test_text_from_the_command_line_and_numbers_from_cdk_json_are_read_alike() -> None:
    text = Settings.from_context({"sequence_length": "4096", "max_pending_hours": "1.5"})
    numbers = Settings.from_context({"sequence_length": 4096, "max_pending_hours": 1.5})
    assert text == numbers
    assert text.sequence_length == 4096


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
    assert getattr(Settings.from_context({key: value}), key) == expected


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("train_tokens", "many", "a whole number is expected"),
        ("train_tokens", "1.5", "a whole number is expected"),
        ("train_tokens", True, "a whole number is expected"),
        ("train_tokens", "-1", "cannot be negative"),
        ("peak_learning_rate", "nan", "a number is expected"),
        ("peak_learning_rate", "inf", "a number is expected"),
        ("packages_in_image", "perhaps", "true or false"),
        ("precision", "fp4", "allowed are bf16, fp32"),
        ("account", "12", "twelve digits"),
        ("account", 12345678901, "within quotes"),
        ("region", "moon", "us-west-2"),
        ("traintokens", "5", "did you mean train_tokens"),
    ],
)
def test_a_wrong_value_is_refused_by_its_key(key: str, value: Any, words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        Settings.from_context({key: value})
    assert key in str(refused.value)


def test_context_of_other_tools_is_left_alone() -> None:
    assert Settings.from_context({"cli-telemetry": False, "vpc-provider:x": {}}) == Settings()

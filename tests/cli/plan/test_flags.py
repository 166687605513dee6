"""Messages of the planner name options, not Python."""

from __future__ import annotations

import pytest

from cdk_blackwell.cli.plan.command import plan
from cdk_blackwell.cli.plan.flags import FLAGS, command_words, in_flags


def test_settings_become_options() -> None:
    assert in_flags("use context_parallel 2 (139.2 GiB) or micro_batch_size 1") == (
        "use --context-parallel 2 (139.2 GiB) or --micro-batch-size 1"
    )
    assert in_flags("instance_count is 3") == "--nodes is 3"
    assert in_flags("use reshard_after_forward True") == "use --reshard"
    assert in_flags("use gpus 8 with ulysses 2 (3 GiB) or precision bf16") == (
        "use --gpus 8 with --ulysses 2 (3 GiB) or --precision bf16"
    )
    assert in_flags("leave out ulysses and replicas and shard_gpus") == (
        "leave out --ulysses and replicas and --shard-gpus"
    )
    assert in_flags("gpus is 12; give 1, 2 or 4") == "--gpus is 12; give 1, 2 or 4"


@pytest.mark.parametrize(
    "text", ["512 gpus", "the mid tier", "low precision", "a_micro_batch_size"]
)
def test_plain_words_stay(text: str) -> None:
    assert in_flags(text) == text


def test_a_change_reads_as_words_of_a_command() -> None:
    assert command_words({"context_parallel": 2, "micro_batch_size": 1}) == (
        "--context-parallel 2 --micro-batch-size 1"
    )
    assert command_words({"reshard_after_forward": False, "compile": False}) == (
        "--keep-weights --eager"
    )
    assert command_words({"micro_batch_size": None}) == "no --micro-batch-size"


def test_every_flag_is_an_option_of_the_command() -> None:
    known = set(plan.__annotations__) | {"optimizer"}
    assert {flag.removeprefix("--").replace("-", "_") for flag in FLAGS.values()} <= known

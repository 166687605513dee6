"""The checks of command lines refuse what a reader could not run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.documentation.commands import check_console


def check(block: str) -> None:
    check_console(cast(Any, SimpleNamespace(parsed=block)))


@pytest.mark.parametrize(
    "line",
    [
        "cdk-blackwell --version",
        "cdk-blackwell logs first --attempt 2 --follow",
        "cdk-blackwell trial first --report --json > trial.json",
        "cdk-blackwell checkpoints list first",
        "cdk-blackwell plan --model llama-3.1-8b --nodes 1 --sequence-length 8192 --verify",
        "make test && make demo",
        "pip install 'cdk-blackwell[cli,local]'",
        "python training_scripts/prepare_data.py --input books",
        "AWS_PROFILE=team npx cdk deploy --all",
    ],
)
def test_lines_that_work(line: str) -> None:
    check(line)


@pytest.mark.parametrize(
    "line",
    [
        "cdk-blackwell log first",
        "cdk-blackwell logs first --atempt 2",
        "cdk-blackwell logs --attempt two",
        "cdk-blackwell checkpoints show first",
        "cdk-blackwell checkpoints list first --nothing",
        "cdk-blackwell plan --model llama-3.1-8b --nodes x --sequence-length 8192 --verify",
        "cdk-blackwell plan --model llama-3.1-8b --nodes 1 --sequence-len 8192",
        "make tests",
        "pip install 'cdk-blackwell[clt]'",
        "python training_scripts/prepare.py",
        "python training_scripts/prepare_data.py --inputs x",
        "cdk deploy SmallModelStacks",
        "cdk deploy --all -c tiers=smal",
        "kubectl get pods",
    ],
)
def test_fails_for_what_a_reader_could_not_run(line: str) -> None:
    with pytest.raises(AssertionError):
        check(line)

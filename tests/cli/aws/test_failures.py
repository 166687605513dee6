"""What AWS says no with is one line and an exit code, never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from botocore import exceptions

from cdk_blackwell.cli.aws.failures import explain
from cdk_blackwell.planning.contracts import EXIT_AWS_REFUSED, EXIT_BAD_INPUT


def refusal(code: str, message: str = "for a reason.") -> exceptions.ClientError:
    return exceptions.ClientError({"Error": {"Code": code, "Message": message}}, "DescribeStacks")


@pytest.mark.parametrize(
    ("error", "words", "code"),
    [
        (refusal("AccessDenied"), "no permission for DescribeStacks", EXIT_AWS_REFUSED),
        (refusal("ExpiredToken"), "aws sso login", EXIT_AWS_REFUSED),
        (refusal("ThrottlingException"), "throttles DescribeStacks", EXIT_AWS_REFUSED),
        (refusal("Odd"), "refused DescribeStacks (Odd): for a reason.", EXIT_AWS_REFUSED),
        (exceptions.NoCredentialsError(), "no usable AWS credentials", EXIT_AWS_REFUSED),
        (exceptions.ProfileNotFound(profile="x"), "(x)", EXIT_BAD_INPUT),
        (exceptions.NoRegionError(), "no AWS region is set", EXIT_BAD_INPUT),
        (exceptions.InvalidRegionError(region_name="us west"), "'us west'", EXIT_BAD_INPUT),
        (ValueError("Invalid endpoint: here"), "AWS_ENDPOINT_URL", EXIT_BAD_INPUT),
        (
            exceptions.EndpointConnectionError(endpoint_url="https://somewhere"),
            "AWS cannot be reached",
            EXIT_AWS_REFUSED,
        ),
    ],
)
def test_expected_failures_are_explained(error: Exception, words: str, code: int) -> None:
    said = explain(error)
    assert said is not None
    assert words in str(said)
    assert "\n" not in str(said)
    assert said.exit_code == code


@pytest.mark.parametrize("error", [KeyError("x"), ValueError("x")])
def test_a_defect_of_ours_stays_one(error: Exception) -> None:
    assert explain(error) is None


def command(*words: str, home: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from cdk_blackwell.cli.entry import main; main()", *words],
        capture_output=True,
        text=True,
        env={
            "HOME": str(home),
            "AWS_EC2_METADATA_DISABLED": "true",
            "PATH": "/usr/bin:/bin",
        },
        check=False,
    )


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("runs",), EXIT_BAD_INPUT, "no AWS region is set"),
        (("runs", "--region", "us-west-2"), EXIT_AWS_REFUSED, "no usable AWS credentials"),
        (("runs", "--profile", "nobody"), EXIT_BAD_INPUT, "nobody"),
    ],
)
def test_the_process_ends_with_one_line(
    tmp_path: Path, words: tuple[str, ...], code: int, message: str
) -> None:
    done = command(*words, home=tmp_path)
    assert done.returncode == code
    assert message in done.stderr
    assert done.stderr.count("\n") == 1

"""The real CDK command line: bootstrap, a failing deploy, deploy, deploy again, destroy."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cdk_blackwell.local.aws import LocalAws
from tests.local_aws.scripted import CDK, NEEDS_CDK

APP = Path(__file__).parent / "sample_app" / "app.py"
STACKS = ("SampleRun", "SampleStorage")

pytestmark = [pytest.mark.slow, NEEDS_CDK]


class Cdk:
    """The command line bound to one embedded AWS."""

    def __init__(self, aws: LocalAws, folder: Path) -> None:
        self._folder = folder
        self._environment = {
            **aws.environment(),
            "CDK_VALIDATION": "false",
            "CDK_DISABLE_CLI_TELEMETRY": "true",
            "JSII_SILENCE_WARNING_UNTESTED_NODE_VERSION": "1",
        }
        node = shutil.which("node", path=str(Path(sys.executable).parent))
        if node:
            path = f"{Path(node).parent}:{self._environment['PATH']}"
            self._environment.update(JSII_NODE=node, PATH=path)

    def __call__(self, *words: str, **environment: str) -> tuple[int, str]:
        done = subprocess.run(
            [str(CDK), *words, "--ci", "--no-notices", "--no-color"],
            env={**self._environment, **environment},
            cwd=self._folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout


def test_bootstrap_failing_deploy_deploy_and_destroy(aws: LocalAws, tmp_path: Path) -> None:
    cdk = Cdk(aws, tmp_path)
    app = ["--app", f"{sys.executable} {APP}"]
    deploy = ["deploy", "--all", "--require-approval=never", *app]
    cloudformation = aws.client("cloudformation")

    status, output = cdk("bootstrap", f"aws://{aws.account}/{aws.region}")
    assert status == 0, output

    status, output = cdk(*deploy, SAMPLE_FAIL="1")
    assert status != 0
    assert "the sample was refused" in output
    failed = cloudformation.describe_stacks(StackName="SampleRun")["Stacks"][0]
    assert failed["StackStatus"] == "ROLLBACK_COMPLETE"

    outputs = tmp_path / "outputs.json"
    status, output = cdk(*deploy, "--outputs-file", str(outputs))
    assert status == 0, output
    resources = cloudformation.list_stack_resources(StackName="SampleStorage")
    bucket = next(
        one["PhysicalResourceId"]
        for one in resources["StackResourceSummaries"]
        if one["ResourceType"] == "AWS::S3::Bucket"
    )
    assert json.loads(outputs.read_text())["SampleRun"]["Greeting"] == f"hello {bucket}"

    status, output = cdk(*deploy)
    assert status == 0, output
    assert "no changes" in output

    status, output = cdk("destroy", "--all", "--force", *app)
    assert status == 0, output
    left = [stack["StackName"] for stack in cloudformation.describe_stacks()["Stacks"]]
    assert not set(STACKS) & set(left)
    functions = aws.client("lambda").list_functions()["Functions"]
    assert not [one for one in functions if one["FunctionName"].startswith("SampleRun")]
    assert bucket not in [one["Name"] for one in aws.client("s3").list_buckets()["Buckets"]]
